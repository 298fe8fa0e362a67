//go:build !unix

package serve

// handles returns how many files this process may open.
func handles() int { return 1 << 14 }
