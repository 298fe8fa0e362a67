// Two functions of the C library that tests replace in PostgreSQL, to save CPU. What a server does stays the same.

#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// A process ends without the destructors of its libraries. PostgreSQL runs what it must run at the end itself, before it calls exit,
// and relies on none of them.
void exit(int status) {
	fflush(NULL);
	_exit(status);
}

// Memory that processes share has pages of two megabytes, where the kernel leaves that to programs: each process has a page fault for
// each page that it touches.
void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
	void *memory = (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
	if (memory != MAP_FAILED && (flags & MAP_SHARED) && (flags & MAP_ANONYMOUS))
		madvise(memory, length, MADV_HUGEPAGE);
	return memory;
}
