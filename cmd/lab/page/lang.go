package page

import "strings"

// Pseudo is the page's language for tests: accents, 40 % longer, and brackets around each text.
const Pseudo = "en-XA"

// accents turns the pseudo-language's letters into English ones.
var accents = func() *strings.Replacer {
	const accented, plain = "ÀÇĎÉĜĤÎĶĻÑÖŔŠŤÛŴÝŽàçďéĝĥîķļñöŕšťûŵýž", "ACDEGHIKLNORSTUWYZacdeghiklnorstuwyz"
	pairs := []string{"[", "", "]", "", " ~", "", "~", ""}
	i := 0
	for _, c := range accented {
		pairs = append(pairs, string(c), plain[i:i+1])
		i++
	}
	return strings.NewReplacer(pairs...)
}()

// inEnglish is what a text of the pseudo-language says.
func (b *Browser) inEnglish(text string) string {
	if b.Lang != Pseudo {
		return text
	}
	return strings.Join(strings.Fields(accents.Replace(text)), " ")
}

// reads is an expression for the text that an element shows, in English.
func (b *Browser) reads(element string) string { return b.readsIn(element + `.innerText`) }

// readsIn is an expression for what a text of the page says, in English.
func (b *Browser) readsIn(text string) string {
	if b.Lang != Pseudo {
		return text
	}
	return text + `.normalize('NFD').replace(/[\p{M}\[\]]| ?~/gu, '')`
}
