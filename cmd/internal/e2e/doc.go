// Package e2e has what tests of whole processes share: sites, which are a database and the nodes that serve from it;
// terminals, which run the program's commands; and started demos.
//
// Package story, below it, tests the situations that getwork is made for, and cmd/lab the web page in browsers and what happens while
// something breaks. Their nodes are processes of the program, which the tests build. Each of these packages imports the program's
// packages, so that the test cache notices their changes.
package e2e
