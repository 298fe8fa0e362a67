// Package docs has the guides, as Markdown, and their pictures.
package docs

import "embed"

// Files are the guides' files.
//
//go:embed *.md *.png
var Files embed.FS
