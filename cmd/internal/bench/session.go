package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"getwork/cmd/internal/bench/stage"
)

// Session is what one command measures, and how.
type Session struct {
	Flags
	stage.Env
	Command string // the command line as far as it matters for the figures, without the URL, which may hold a password
	Noise   bool   // measure the machine's noise; else the measurements compare their own rounds
}

// Report makes the measurements, and writes the report. If a measurement fails, the others are still made.
func (s *Session) Report(ctx context.Context, all []Measurement, out io.Writer) (report *Report, failed error) {
	e := &s.Env
	e.DatabaseURL = s.Flags.DatabaseURL
	if s.Flags.Rounds != nil {
		e.Rounds = *s.Flags.Rounds
	}
	private := e.DatabaseURL == ""
	if private {
		e.Logf("starting a private PostgreSQL")
		stop, err := e.Private(ctx)
		if err != nil {
			return nil, err
		}
		defer stop()
	} else if err := e.FindServer(ctx); err != nil {
		return nil, err
	}
	facts, err := readFacts(ctx, e)
	if err != nil {
		return nil, err
	}
	facts.Private, facts.Command = private, s.commandLine()
	take := func(name, help string, do func() error) {
		if ctx.Err() != nil {
			return
		}
		e.Logf("%s: %s", name, help)
		if err := do(); err != nil && ctx.Err() == nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
			e.Logf("%s failed: %v", name, err)
		}
	}
	report = &Report{Facts: facts}
	references := &Rounds{Env: e, Figures: noiseFigures()}
	takeNoise := func() {
		if s.Noise {
			take("noise", "how much the machine differs from itself", func() error { return noise(ctx, references) })
		}
	}
	takeNoise()
	for _, m := range all {
		take(m.Name, m.Help, func() error {
			figures, err := m.Run(ctx, e)
			report.Figures = append(report.Figures, figures...)
			return err
		})
	}
	takeNoise()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	report.References = references.Figures
	report.Conclude()
	if s.JSON {
		err = report.JSON(out)
	} else {
		_, err = io.WriteString(out, report.Markdown())
	}
	return report, errors.Join(failed, err)
}

// commandLine returns the command with its flags.
func (s *Session) commandLine() string {
	text := s.Command
	if s.Flags.DatabaseURL != "" {
		text += " --database-url URL"
	}
	if len(s.Only) > 0 {
		text += " --only " + strings.Join(s.Only, ",")
	}
	return text + fmt.Sprintf(" --rounds %d", s.Env.Rounds)
}
