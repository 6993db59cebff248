#!/usr/bin/env bash
# Fails where a word stands that the docs and the code use no more: each line below has such words, and what to say instead.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0

# Comments begin with their subject. An identifier that is one of the words may, in front of its verb.
if git grep -nE '(^\s*// |//.*[.;] )(What|Who|Whose|Where|Of) ' -- '*.go' ':!operator/api' | grep -vE '// (What|Of) (is|are|says|names|returns|sums) '; then
  echo "begin the sentence with its subject, or with If or When" >&2
  failed=1
fi

while IFS=: read -r words instead; do
  status=0
  git grep -nwiE "$words" -- . ':!hack/words.sh' ':!*.sum' ':!bench/results' || status=$?
  case $status in
    0) echo "say instead:$instead" >&2; failed=1 ;;
    1) ;;
    *) exit $status ;;
  esac
done <<'WORDS'
rooms?: package or part; space, where there is some
doors?: endpoint
strangers?: unknown sender, anonymous reader; foreign, of what lies under our keys in the bucket
visitors?: client
squeez(e|es|ed|er): compress
withdr(aw|aws|awn|ew|awing|awal|awals): mark as a duplicate, cancel
tak(e|es|en|ing) (it |that |them |objects )?back|took (it |that )?back: retract, undo, revoke
(go|goes|going|bring|brings|bringing|brought|came|come|comes) home|at home|homing|homeward: drain, archived
lanes?: priority
spec\.(ways|path): listeners, linkProbe
lapped: overrun
whois: inspect
last words: final report
WORDS
exit $failed
