package schematest

import (
	"fmt"
	"hash/fnv"
	"os"
	"testing"
)

// thorough is 1, or such as 2/3: the second third of the tests that begin with [Thorough].
const thorough = "GETWORK_TEST_ALL"

// Also reports whether the thorough cases of that name are in what GETWORK_TEST_ALL names.
func Also(name string) bool {
	part, parts, err := parsePart(os.Getenv(thorough))
	return err == nil && parts > 0 && partOf(name, parts) == part
}

// Thorough leaves out a test that shows a rare course, or in another browser or in more cases what others show, unless
// GETWORK_TEST_ALL is set, and the test is in the part that it names.
func Thorough(t testing.TB) {
	t.Helper()
	Long(t)
	part, parts, err := parsePart(os.Getenv(thorough))
	switch {
	case err != nil:
		t.Fatal(err)
	case parts == 0:
		t.Skip("a rare course, or shows in another way what other tests show: only with GETWORK_TEST_ALL=1, as `make all` sets it")
	case partOf(t.Name(), parts) != part:
		t.Skipf("not in part %d of %d of the thorough tests: GETWORK_TEST_ALL=1 runs all", part, parts)
	}
}

// parsePart returns which part of how many is wanted; 0 parts: none.
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
