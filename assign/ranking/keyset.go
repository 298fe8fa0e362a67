package ranking

import "hash/maphash"

// KeySet is a set of items' keys. It holds two hashes of 64 random bits for each instead of the key, so that the garbage
// collector finds nothing to follow in it: a million keys would be followed again and again while the node serves clicks. That two
// keys of a result have the same hashes is less likely than that the machine's memory fails.
type KeySet struct {
	first, second maphash.Seed
	hashes        map[[2]uint64]struct{}
}

func newKeySet() *KeySet {
	return &KeySet{maphash.MakeSeed(), maphash.MakeSeed(), map[[2]uint64]struct{}{}}
}

func (k *KeySet) of(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(k.first, key), maphash.Bytes(k.second, key)}
}

func (k *KeySet) add(key []byte) { k.hashes[k.of(key)] = struct{}{} }

func (k *KeySet) has(key []byte) bool {
	_, has := k.hashes[k.of(key)]
	return has
}

func (k *KeySet) remove(key string) { delete(k.hashes, k.of([]byte(key))) }

// Len returns the number of keys.
func (k *KeySet) Len() int { return len(k.hashes) }
