// Package page drives a node's page in real browsers, for the tests of the page: windows of Chromium, tabs of Firefox, and the
// steps that people take in them.
//
// The tests are in packages below it: desk tests what a worker does at their desk, manage what managers and observers do, access
// how people and programs come to the page, look how it looks, and demo the demo's own page. One package of all would not end
// within go test's ten minutes beside others. Only tests import page, since it brings browsers' protocols and a whole node with it.
package page
