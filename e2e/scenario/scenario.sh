#!/bin/sh
# What every Site does, wherever it runs: declare, send by every protocol, kill, read by every endpoint, retract, restart.
# It needs a POSIX shell, curl, GNU coreutils and substorm, and is told by variables:
#   SUBSTORM          the program; its kubeconfig and namespace are those of the environment
#   SITE, POOL        names of the Site and of an IngestGateway of it
#   GATEWAY           host that receives
#   FIRST_PORT        first of four ports of it that are free
#   URL               where a FeedServer of the Site serves
#   CURL              curl, with what it needs to trust that (default: curl)
#   KILL, RESTART     commands that kill what receives and serves, and that start it anew in order; they return once it is begun
#   FOLDER            an empty folder to work in
set -eu

here=$(cd "$(dirname "$0")" && pwd)
: "${SUBSTORM:?}" "${SITE:?}" "${POOL:?}" "${GATEWAY:?}" "${FIRST_PORT:?}" "${URL:?}" "${KILL:?}" "${RESTART:?}" "${FOLDER:?}"
CURL=${CURL:-curl}
frames=$FIRST_PORT framed=$((FIRST_PORT + 1)) pictures=$((FIRST_PORT + 2)) telemetry=$((FIRST_PORT + 3))
names="scenario-camera scenario-product scenario-magnetometer"
products=http://$GATEWAY:$pictures/in/scenario-product
cd "$FOLDER"

say() { printf '== %s\n' "$*"; }
fail() { printf 'scenario: %s\n' "$*" >&2; exit 1; }

# eventually WHAT COMMAND...: tries until it succeeds, for three minutes.
eventually() {
  what=$1 end=$(($(date +%s) + 180))
  shift
  until "$@" >last.out 2>&1; do
    [ "$(date +%s)" -lt "$end" ] || { cat last.out >&2; fail "never: $what"; }
    sleep 0.2
  done
}

# make FILE BYTES: an object like no other.
make() { head -c "$2" /dev/urandom >"$1"; }
digest() { sha256sum "$1" | cut -d' ' -f1; }
answer() { $CURL -sS -o got -w '%{http_code}' "$@"; }
answers() { want=$1; shift; [ "$(answer "$@")" = "$want" ]; }

condition() { # KIND NAME TYPE
  [ "$($SUBSTORM get "$1" "$2" -o "jsonpath={.status.conditions[?(@.type=='$3')].status}")" = True ]
}

say declare
sed -e "s/@SITE@/$SITE/; s/@POOL@/$POOL/; s/@FRAMES@/$frames/; s/@FRAMED@/$framed/; s/@PICTURES@/$pictures/; s/@TELEMETRY@/$telemetry/" "$here/instruments.yaml" >declared.yaml
$SUBSTORM apply -f declared.yaml
for name in $names; do eventually "$name is programmed" condition instrument "$name" Programmed; done
eventually "the consumer is ready" condition feedconsumer scenario-map Ready
sed 's/AllSkyCamera/Camera Of No Kind/' declared.yaml | $SUBSTORM apply -f - >last.out 2>&1 && fail "a type with blanks was taken"
grep -q 'spec.type' last.out || fail "the error does not name spec.type: $(cat last.out)"

say send by every protocol
for i in 1 2 3; do make "camera-$i" $((100000 + i)); done
$SUBSTORM send --to "$GATEWAY:$frames" camera-1 camera-2
$SUBSTORM send --to "$GATEWAY:$framed" --framing length-prefixed camera-3
make product-1 50000
make product-2 60000
make product-3 20000000
eventually "PUT is answered 201" answers 201 -T product-1 "$products/2026/one.png"
answers 201 -H 'Content-Type: image/png' --data-binary @product-2 "$products/" || fail "POST: $(cat got)"
$SUBSTORM send --to "$products/" product-3
# UDP tells nobody what a node drops that does not forward the port yet.
arrives() {
  printf '20000.5,40000.25\n' | $SUBSTORM send --udp --lines --to "$GATEWAY:$telemetry" - && sleep 2 &&
    $SUBSTORM archive ledger --instrument scenario-magnetometer -o json | grep -q '"datagrams":[1-9]'
}
eventually "a datagram is received" arrives
i=0
while [ $i -lt 20 ]; do
  printf '%d.5,%d.25\n' $((20000 + i)) $((40000 + i))
  i=$((i + 1))
done | $SUBSTORM send --udp --lines --to "$GATEWAY:$telemetry" --rate 20 -

say kill while something is sent
for i in $(seq 4 23); do make "camera-$i" 200000; done
$SUBSTORM send --to "$GATEWAY:$frames" --rate 5 --give-up-after 3m camera-4 camera-5 camera-6 camera-7 camera-8 camera-9 camera-1? camera-2? >sent.out 2>&1 &
sender=$!
sleep 1
sh -c "$KILL"
wait $sender || { cat sent.out >&2; fail "what was sent while the gateway was killed has no receipt"; }

# listed INSTRUMENT FILE...: the archive lists each, once.
listed() {
  $SUBSTORM archive ls --instrument "$1" -o json >listed || return 1
  shift
  for file; do
    [ "$(grep -c "$(digest "$file")" listed)" = 1 ] || { echo "$file is listed $(grep -c "$(digest "$file")" listed) times"; return 1; }
  done
}
served() { answers 200 -L "$1" && cmp got "$2"; }
has() { answers 200 -L "$1" && grep -q "$2" got; }
sampled() { # N: HAPI has N samples
  day=$(date -u +%Y-%m-%dT00:00Z) next=$(date -u -d '+1 day' +%Y-%m-%dT00:00Z)
  answers 200 "$URL/hapi/data?dataset=scenario-magnetometer/seconds&start=$day&stop=$next" && [ "$(wc -l <got)" -ge "$1" ] || {
    echo "HAPI answers:"
    cat got
    return 1
  }
}

read_all() {
  eventually "all frames are listed" listed scenario-camera camera-*
  eventually "all products are listed" listed scenario-product product-*
  for file in camera-* product-*; do
    $SUBSTORM archive cat "$(digest "$file")" | cmp - "$file" || fail "archive cat gives something else than $file"
  done
  eventually "the name is served" served "$URL/archive/scenario-product/n/2026/one.png" product-1
  $CURL -sS -D head -o got "$URL/archive/scenario-product/n/2026/one.png"
  tag=$(tr -d '\r' <head | sed -n 's/^[Ee][Tt]ag: //p')
  answers 304 -H "If-None-Match: $tag" "$URL/archive/scenario-product/n/2026/one.png" || fail "its entity tag $tag does not save it"
  answers 206 -r 0-99 "$URL/archive/scenario-product/n/2026/one.png" || fail "no ranges: $(cat got)"
  head -c 100 product-1 | cmp - got || fail "the range is of something else"
  eventually "the directory lists it" has "$URL/archive/scenario-product/n/2026/" one.png
  eventually "the newest object is served" answers 200 -L "$URL/latest/scenario-product"
  eventually "the bundle has it" sh -c "$CURL -fsS '$URL/bundle/scenario-product.tar' | tar -tf - | grep one.png"
  eventually "Atom names it" has "$URL/atom/scenario-product.xml" '<entry>'
  eventually "HAPI has the catalog" has "$URL/hapi/catalog" scenario-magnetometer/seconds
  eventually "HAPI has the samples" sampled 21
  eventually "the page shows it" has "$URL/" scenario-camera
  eventually "robots are told" answers 200 "$URL/robots.txt"
}

say read by every endpoint
read_all
$CURL -sSN "$URL/feeds/scenario/events?consumer=scenario-map" >events 2>/dev/null &
follower=$!
trap 'kill $follower 2>/dev/null || true' EXIT
eventually "the feed is followed" grep -q '^id: ' events
make product-4 70000
answers 201 -T product-4 "$products/2026/four.png" || fail "PUT: $(cat got)"
eventually "the feed tells of it" grep -q "$(digest product-4)" events

say retract
$SUBSTORM archive retract scenario-product n/2026/one.png --reason "the scenario" --by scenario
eventually "it is gone" answers 410 "$URL/archive/scenario-product/n/2026/one.png"
$SUBSTORM archive restore scenario-product n/2026/one.png --reason "the scenario" --by scenario
eventually "it is back" served "$URL/archive/scenario-product/n/2026/one.png" product-1

say restart
sh -c "$RESTART"
eventually "the API answers" $SUBSTORM get instruments
read_all
for name in $names; do eventually "$name is programmed" condition instrument "$name" Programmed; done
agrees() { $SUBSTORM archive ledger --instrument scenario-camera | grep -q 'The columns agree'; }
eventually "the ledger agrees" agrees

say delete
$SUBSTORM delete -f declared.yaml
read_deleted() { $SUBSTORM archive ls --instrument scenario-camera -o json | grep -q "$(digest camera-1)"; }
eventually "what it sent stays" read_deleted
say "all is well"
