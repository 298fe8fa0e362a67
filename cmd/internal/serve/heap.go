package serve

import "runtime"

// heapBallast is memory that nobody writes to, so the kernel never backs it with pages. It makes the heap look larger to
// the garbage collector, which starts when the heap has doubled. A node holds a few megabytes and allocates a hundred in
// a second. Without the ballast it would be collected dozens of times a second, which takes a fifth of its CPU time.
const heapBallast = 32 << 20

// withHeapBallast calls f, and keeps the ballast until f returns.
func withHeapBallast(f func() error) error {
	ballast := make([]byte, heapBallast)
	defer runtime.KeepAlive(ballast)
	return f()
}
