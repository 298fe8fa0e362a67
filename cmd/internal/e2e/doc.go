// Package e2e has what tests of whole processes share: sites, which are a database and the nodes that serve from it;
// terminals, which run the program's commands; and started demos.
//
// The tests are in packages below it, which run in parallel: those below page test the web page in real browsers, story the
// situations that getwork is made for, and fault the behaviour while something breaks. Their nodes are processes of the
// program, which the tests build. Each of these packages imports the program's packages, so that the test cache notices
// their changes.
package e2e
