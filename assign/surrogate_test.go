package assign

import "testing"

func TestLoneSurrogate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`"plain"`:                         false,
		`"\ud83c\udf89"`:                  false,
		`"\uD83C\uDF89\ud83c\udf89 \n\""`: false,
		`"\\ud83c"`:                       false, // a backslash, and letters
		`"\ufffd"`:                        false,
		`"a\ud83c"`:                       true,
		`"\ud83c!"`:                       true,
		`"\ud83c\n"`:                      true,
		`"\ud83c\ud83c\udf89"`:            true,
		`"\udf89"`:                        true,
		`"\\\udf89"`:                      true,
		`{"a\uDF89":1}`:                   true,
		`"`:                               false,
		`\`:                               false,
		`"\ud8`:                           false,
	} {
		if got := LoneSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}

func FuzzLoneSurrogate(f *testing.F) {
	f.Add(`"\ud83c`)
	f.Fuzz(func(_ *testing.T, text string) { LoneSurrogate([]byte(text)) })
}
