#!/bin/sh
# Process B: a worker. Claims events with a tag, one after the other, works on each, and says how it went.
#
#     HEADRACE_URL=http://127.0.0.1:8080 TAGS=reporting examples/process_b.sh
#
# It waits at the server for up to 20 seconds when there is nothing to do, and while it works on an event it
# keeps its claim by a heartbeat every 20 seconds. WORK is the command that does the work: it gets the event as
# JSON on its standard input, and what it prints when it fails is the error message. ONCE=1: stop when nothing is left.
set -eu

url=${HEADRACE_URL:-http://127.0.0.1:8080}
tags=${TAGS:-reporting}
worker=$(hostname):$$
work=${WORK:-cat}
in=${NAMESPACE:+&namespace=$NAMESPACE}
wait=${ONCE:+0}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

ask() { # ask [options] path: prints the answer's status, and leaves its body in $folder/answer
  curl --silent --show-error --max-time 40 --output "$folder/answer" --write-out '%{http_code}' \
    ${HEADRACE_TOKEN:+--header "Authorization: Bearer $HEADRACE_TOKEN"} \
    --header "Content-Type: application/json" "$@" || true
}

keep_claim() { # a heartbeat now and then, until it is told to stop
  trap 'kill "$nap"; exit' TERM
  while sleep 20 & nap=$!; wait "$nap"; do
    ask --data "{\"worker_id\": \"$worker\", \"attempt\": $attempt}" \
      "$url/events/$id/heartbeat?$in"
  done
}

text() { # what a file says, without what JSON would want escaped
  LC_ALL=C tr -cd '\040-\176' <"$1" | tr -d '"\\' | cut -c 1-1000
}

while true; do
  status=$(ask "$url/events/subscribe?tags=$tags&worker_id=$worker&wait=${wait:-20}$in")
  case $status in
  200) ;;
  204)
    [ -z "${ONCE:-}" ] || exit 0
    continue
    ;;
  *) # away, or too busy: try again
    echo "no event: status $status" >&2
    sleep 5
    continue
    ;;
  esac

  mv "$folder/answer" "$folder/event"
  id=$(sed 's/^{"id":\([0-9]*\).*/\1/' "$folder/event")
  attempt=$(sed 's/.*"attempt":\([0-9]*\).*/\1/' "$folder/event") # the last one: a payload may have one, too
  echo "event $id, attempt $attempt"

  keep_claim >/dev/null 2>&1 &
  heartbeat=$!
  began=$(date +%s)
  code=0
  $work <"$folder/event" >"$folder/output" 2>&1 || code=$?
  ms=$((($(date +%s) - began) * 1000))
  kill $heartbeat 2>/dev/null || true

  if [ "$code" -eq 0 ]; then
    action=complete
    report="{\"worker_id\": \"$worker\", \"attempt\": $attempt, \"execution_time_ms\": $ms, \"status_code\": 200}"
  else
    action=fail
    report="{\"worker_id\": \"$worker\", \"attempt\": $attempt, \"execution_time_ms\": $ms, \"status_code\": 500,
             \"error_message\": \"exit code $code: $(text "$folder/output")\"}"
  fi
  # It may be said again and again: it is done once.
  for _ in 1 2 3 4 5; do
    status=$(ask --data "$report" "$url/events/$id/$action?$in")
    case $status in
    2?? | 4??) break ;;
    esac
    sleep 1
  done
  echo "event $id: $action, status $status"
done
