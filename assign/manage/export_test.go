package manage

// These are for the tests of package manage_test: enginetest imports this one.
var (
	Delete    = deleteTask
	RedriveIn = redrive
)

const (
	ReleaseBatch = releaseBatch

	SettlePlaces   = settlePlaces
	SelectReleased = selectReleased
	RedriveWork    = redriveWork
	TaskInUse      = taskInUse
)
