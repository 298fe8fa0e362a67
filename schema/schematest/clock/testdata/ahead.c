// Preloaded into PostgreSQL: the time of day is the system's, plus the number of microseconds in the first eight bytes of the
// file named by GETWORK_TEST_CLOCK. All processes of the server have that file mapped, so they see a change at once. Only the
// time of day is changed: no monotonic clock, no timer, no sleep.
//
// PostgreSQL reads the time in its signal handlers, too, so nothing here may allocate, lock or open anything.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;
static int (*system_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
	system_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	const char *name = getenv("GETWORK_TEST_CLOCK");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *mapped = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (mapped != MAP_FAILED)
		ahead = mapped;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = system_clock ? system_clock(id, t) : (int)syscall(SYS_clock_gettime, id, t);
	if (failed || !ahead || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return failed;
	int64_t by = *ahead;
	t->tv_sec += by / 1000000;
	t->tv_nsec += by % 1000000 * 1000;
	if (t->tv_nsec < 0)
		t->tv_sec--, t->tv_nsec += 1000000000;
	else if (t->tv_nsec >= 1000000000)
		t->tv_sec++, t->tv_nsec -= 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	(void)zone;
	struct timespec t;
	int failed = clock_gettime(CLOCK_REALTIME, &t);
	if (!failed)
		tv->tv_sec = t.tv_sec, tv->tv_usec = t.tv_nsec / 1000;
	return failed;
}

time_t time(time_t *into) {
	struct timespec t;
	time_t now = clock_gettime(CLOCK_REALTIME, &t) ? (time_t)-1 : t.tv_sec;
	if (into)
		*into = now;
	return now;
}
