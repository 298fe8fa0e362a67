package feed_test

import (
	"testing"

	"getwork/assign/enginetest"
	"getwork/assign/feed"
)

func init() {
	feed.NewNode = func(t testing.TB, url string, o feed.NodeOptions) *feed.Node {
		t.Helper()
		n := enginetest.New(t, url, enginetest.Options{Steps: o.Steps, Deaf: o.Deaf, Mute: o.Mute, Every: o.Every, Dumb: o.Dumb, Log: o.Log, Tracer: o.Tracer})
		return &feed.Node{Engine: n.Engine, Records: n.Records, Feed: n.Feed, Pools: n.Pools, Begin: n.Begin, Stop: func() { n.Stop() }}
	}
}
