// Package lab is the laboratory, a module of its own: what torments getwork, measures it and lies to it, and tests of what surrounds a
// node.
//
//   - torture and getwork-torture: people, programs and faults for as long as one likes, and a checker that reads their history; in its
//     tests the defences that are switched off, the errors that are planted, and the attacks
//   - measure and getwork-measure: the figures of docs/benchmarks.md
//   - liar: an identity provider that lies, against getwork's log-in
//   - fault: what breaks; patroni runs servers that fail over
//   - page: the web page in browsers
//   - story: what people and programs do with getwork, and the guides to its installation
//   - deploy: what a release is made of
//
// The tests read files of the other module, which go test's cache does not notice, so they are run with -count=1:
//
//	go -C cmd/lab test -count=1 ./...
package lab

import (
	"path/filepath"

	"getwork/cmd/internal/node"
)

// Path returns the path of a file of the repository, such as docs/client.md.
func Path(file string) string {
	root, err := node.Source()
	if err != nil {
		panic(err)
	}
	return filepath.Join(root, file)
}
