package oidc

import (
	"errors"
	"fmt"
	"regexp"

	"golang.org/x/oauth2"

	"getwork/assign"
	"getwork/web/grants"
)

// Failure is why a log-in, a refresh or a token was refused. It is an [assign.Refusal] to whoever shows it; the reason and the
// cause are for the log. None of its texts has a claim, a token or a text of the provider.
type Failure struct {
	Refusal *assign.Refusal // LogInFailed, Forbidden, Unauthenticated or Unavailable; of a log-out message also Invalid or TooLarge
	Reason  string          // one of a fixed set of codes
	Code    string          // the provider's own error code, if it sent one
	Cause   error           // fit for the log; nil: the reason says all
	Ends    bool            // of a refresh: the session is over
	Sub     string          // the account to which the provider gives no role any more; empty: it is about something else
}

func (f *Failure) Error() string {
	text := "log-in refused: " + f.Reason
	if f.Code != "" {
		text += " (" + f.Code + ")"
	}
	if f.Cause != nil {
		text += ": " + f.Cause.Error()
	}
	return text
}

// Unwrap returns the refusal, so that it becomes a problem as others do.
func (f *Failure) Unwrap() error { return f.Refusal }

// Facts returns the failure for a log line.
func (f *Failure) Facts() []any {
	facts := []any{"reason", f.Reason}
	if f.Code != "" {
		facts = append(facts, "code", f.Code)
	}
	if f.Cause != nil {
		facts = append(facts, "error", f.Cause)
	}
	return facts
}

// What a person reads. There are few texts, because they can do few things. static/lang has them in other languages.
const (
	wordsAgain    = "This log-in can’t be finished: it was begun too long ago, in another browser, or was finished already. Try again."
	wordsProvider = "Your company’s log-in service sent an answer that can’t be accepted. Try again; if it happens each time, tell whoever runs getwork, who finds the reason in its log."
	wordsAway     = "Your company’s log-in service can’t be reached, or does not answer, now. Try again in a moment."
	wordsDenied   = "Your company’s log-in service ended the log-in without letting you in. Try again."
	wordsNoGrant  = "Your account has no role in getwork: none of its groups gives one. Ask whoever manages the groups of your company’s accounts."
	wordsName     = "Your account’s name can’t be used here: the log-in service does not send it, or sends something else. Tell whoever runs getwork, who finds the reason in its log."
	wordsGroups   = "Your account’s groups can’t be used here. Tell whoever runs getwork, who finds the reason in its log."
	wordsTooMany  = "Your account is in too many groups for them to be used. Tell whoever runs getwork: the log-in service should send app roles, or fewer groups."
)

// fail returns a failure of ours to refuse: the browser's answer, or the provider's, is not acceptable.
func fail(reason, words string) *Failure {
	return &Failure{Refusal: assign.Refuse(assign.LogInFailed, "%s", words), Reason: reason}
}

// forbid returns a failure of somebody who is known, and has no business here.
func forbid(reason, words string) *Failure {
	return &Failure{Refusal: assign.Refuse(assign.Forbidden, "%s", words), Reason: reason}
}

// away returns a failure of the provider: it can't be asked, or makes mistakes of its own.
func away(reason string, cause error) *Failure {
	return &Failure{Refusal: assign.Refuse(assign.Unavailable, "%s", wordsAway), Reason: reason, Cause: cause}
}

var codes = regexp.MustCompile(`^[a-z_]{1,40}$`)

// codeOf returns an error code of the provider as it may be logged.
func codeOf(code string) string {
	if codes.MatchString(code) {
		return code
	}
	return "unknown"
}

// tokenFailure returns why the token endpoint gave no tokens.
func tokenFailure(err error) *Failure {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		return away("token-endpoint", plain(err))
	}
	status := 0
	if answer.Response != nil {
		status = answer.Response.StatusCode
	}
	switch {
	case answer.ErrorCode == "invalid_grant" && status < 500:
		f := fail("code-refused", wordsAgain)
		f.Code = answer.ErrorCode
		return f
	case answer.ErrorCode != "" && status < 500:
		// Such as invalid_client: the secret is wrong, or the client's registration is.
		f := away("token-endpoint", nil)
		f.Code = codeOf(answer.ErrorCode)
		return f
	}
	return away("token-endpoint", fmt.Errorf("it answers with status %d", status))
}

// rightsFailure returns why groups gave no rights.
func rightsFailure(err error) *Failure {
	switch {
	case errors.Is(err, grants.ErrNone):
		return forbid("no-grant", wordsNoGrant)
	case errors.Is(err, grants.ErrTooMany):
		return fail("groups-too-many", wordsTooMany)
	case errors.Is(err, grants.ErrName):
		return fail("group-name", wordsGroups)
	}
	return fail("groups-form", wordsGroups)
}

// keysFailure returns why a signature was not verified.
func keysFailure(err error) *Failure {
	if errors.Is(err, errKeysAway) {
		return away("keys-away", nil)
	}
	return fail("signature", wordsProvider)
}
