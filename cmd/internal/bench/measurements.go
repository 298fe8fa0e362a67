package bench

// All are the measurements, in the order in which they are made.
var All = []Measurement{
	{Name: "clicks", Help: "clicks a second from a fresh shelf, 64 and 256 users, beside pgbench", Run: clicks},
	{Name: "idle-click", Help: "how long one click takes on an idle system", Run: idleClick},
	{Name: "push", Help: "how long after a commit another node tells the user", Run: push},
	{Name: "busy", Help: "how long a click takes while a query runs and the shelf is fresh", Run: busy},
	{Name: "history", Help: "what a click costs when millions of rows of work lie behind it; fills some 6 GB of disk, and takes minutes to", Run: history},
	{Name: "waiting", Help: "how long after the query's end the last of thousands of waiting users has his items", Run: waiting},
	{Name: "memory", Help: "what a waiting user costs a node's memory", Run: memory},
	{Name: "idle", Help: "what a node and the database do while nobody wants anything", Run: idle},
	{Name: "listeners", Help: "clicks a second while 19 more nodes listen", Run: listeners},
	{Name: "wrap", Help: "what a query's run takes more than the query alone", Run: wrap},
	{Name: "growth", Help: "how the figures grow, for plots: made only when it is named here, or for --write", Run: growth, ForPlots: true},
	{Name: "against", Help: "CPU per click beside another getwork's, in turn, and how much the same one differs from itself: made only for --against", Run: against, ForAgainst: true},
}
