package serve

import "runtime"

// heapFloor is memory that nobody writes to, so the kernel never backs it with pages. It makes the heap look larger to
// the garbage collector, which starts when the heap has doubled. A node holds a few megabytes and allocates a hundred
// in a second; without the floor it would be collected dozens of times a second, at a fifth of its CPU.
// collected dozens of times in it, for a fifth of its CPU.
const heapFloor = 32 << 20

// withHeapFloor calls f, and keeps the heap floor until f returns.
func withHeapFloor(f func() error) error {
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	return f()
}
