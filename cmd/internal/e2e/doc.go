// Package e2e has what the tests of whole processes share: sites, which are a database and the nodes that serve from it,
// terminals, which run the program's commands, and started demos.
//
// The tests are in packages below it, which run beside each other: page has the web page in real browsers, story what
// getwork is made for, and fault what breaks. Their nodes are processes of the program, which the test builds. So that
// the test cache notices a change of it, a package that has such tests imports what the program is made of.
package e2e
