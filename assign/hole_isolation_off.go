//go:build !hole_isolation

package assign

// isolationLevel is the isolation level of what getwork writes, whatever the server's default is.
const isolationLevel = "isolation level read committed "
