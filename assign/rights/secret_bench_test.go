package rights

import "testing"

// BenchmarkToken is what a node computes of a token with each call.
func BenchmarkToken(b *testing.B) {
	_, token := newToken()
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := tokenID(token); !ok {
			b.Fatal(token)
		}
		Hash(token)
	}
}
