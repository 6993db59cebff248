// SPDX-License-Identifier: Apache-2.0

package https

import (
	"context"

	"github.com/substorm/substorm/internal/mirrorindex"
)

// askedAtOnce is how many instruments' days, or days of their months, are asked for in one question.
const askedAtOnce = 100

// ConfirmNothing says to the other side that no run has compared what is here, and for each day of some of its instruments that nothing of it
// is known to be here: a mirror that was installed again, or has an empty folder, does not have what it confirmed before. Errors: those of
// Days and Confirm.
func (c *Client) ConfirmNothing(ctx context.Context, instruments []string) error {
	if _, err := c.Confirm(ctx, []mirrorindex.ConfirmLine{{Run: &mirrorindex.ConfirmRun{}}}); err != nil {
		return err
	}
	var questions []mirrorindex.DaysQuestion
	for _, name := range instruments {
		questions = append(questions, mirrorindex.DaysQuestion{Instrument: name})
	}
	var lines []mirrorindex.ConfirmLine
	for len(questions) > 0 {
		some := questions[:min(len(questions), askedAtOnce)]
		questions = questions[len(some):]
		answers, err := c.Days(ctx, some)
		if err != nil {
			return err
		}
		for i, answer := range answers {
			if answer[0].Gone {
				continue
			}
			for _, line := range answer[1:] {
				if line.Month != "" {
					questions = append(questions, mirrorindex.DaysQuestion{Instrument: some[i].Instrument, Month: line.Month})
					continue
				}
				lines = append(lines, mirrorindex.ConfirmLine{Instrument: some[i].Instrument, Day: line.Day})
			}
		}
		for len(lines) >= mirrorindex.MaxConfirmed || len(questions) == 0 && len(lines) > 0 {
			n := min(len(lines), mirrorindex.MaxConfirmed)
			if _, err := c.Confirm(ctx, lines[:n]); err != nil {
				return err
			}
			lines = lines[n:]
		}
	}
	return nil
}
