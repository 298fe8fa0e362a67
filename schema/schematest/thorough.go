package schematest

import (
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"testing"
)

// thorough is 1, or such as 2/3: the second third of the tests that begin with [Thorough].
const thorough = "GETWORK_TEST_ALL"

// Thorough leaves out a test that shows a rare course, or in another browser or in more cases what others show, unless
// GETWORK_TEST_ALL is set, and the test is in the part that it names.
func Thorough(t testing.TB) {
	t.Helper()
	Long(t)
	switch part, parts := wanted(); {
	case parts == 0:
		t.Skip("a rare course, or shows in another way what other tests show: only with GETWORK_TEST_ALL=1, as `make all` sets it")
	case !Also(t.Name()):
		t.Skipf("not in part %d of %d of the thorough tests: GETWORK_TEST_ALL=1 runs all", part, parts)
	}
}

// Also reports whether thorough cases of that name are to be run: cases that a test adds to those that it always has. Neither they
// nor a subtest that begins with [Thorough] may be within a test that does: if the two are in different parts, no part runs them.
func Also(name string) bool {
	part, parts := wanted()
	return parts > 0 && partOf(name, parts) == part
}

// wanted returns which part of how many GETWORK_TEST_ALL names; 0 parts: none.
var wanted = sync.OnceValues(func() (part, parts int) {
	part, parts, err := parsePart(os.Getenv(thorough))
	if err != nil {
		panic(err)
	}
	return part, parts
})

// parsePart returns which part of how many the text names; 0 parts: none.
func parsePart(text string) (part, parts int, err error) {
	switch text {
	case "":
		return 0, 0, nil
	case "1":
		return 1, 1, nil
	}
	if n, _ := fmt.Sscanf(text, "%d/%d", &part, &parts); n != 2 || text != fmt.Sprintf("%d/%d", part, parts) || part < 1 || part > parts {
		return 0, 0, fmt.Errorf("%s=%q: want 1, or a part such as 2/3", thorough, text)
	}
	return part, parts, nil
}

// partOf returns the part that a test is in, from 1: always the same.
func partOf(test string, parts int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(test))
	return int(h.Sum32()%uint32(parts)) + 1 //nolint:gosec // a few parts
}
