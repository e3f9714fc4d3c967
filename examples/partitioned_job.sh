#!/usr/bin/env bash
# Four shell scripts are the partitions of one job: each counts words, waits at a barrier until all
# have, and then writes its share of the total. One of them fails at first. Needs nothing but plain tools.
#
#   examples/partitioned_job.sh
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet -p plimsoll-cli --bin plimsoll
PATH=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd):$PATH

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export PLIMSOLL_STORE=${PLIMSOLL_STORE:-sqlite:job.db}
partitions=4
for n in $(seq 0 $((partitions - 1))); do seq $(((n + 1) * 100)) >"input.$n"; done

# The partition: it says how far it is, and needs to know of no other.
cat >partition.sh <<'SCRIPT'
#!/bin/sh
set -eu
say() { tag=$1; shift; plimsoll job set words --partition "$me" --partitions "$all" --tag "$tag" "$@" --quiet; }
me=$1 all=$2
say count --started
# Whoever runs this twice writes the same file twice.
wc -l <"input.$me" >"count.$me.new" && mv "count.$me.new" "count.$me"
say count --finished --payload "{\"words\": $(cat "count.$me")}"

# Nobody adds before all have counted: exit code 30 names the one that failed.
plimsoll job barrier words count --timeout 1m --quiet
say share --started
total=$(cat count.? | awk '{ n += $1 } END { print n }')
awk -v n="$(cat "count.$me")" -v total="$total" 'BEGIN { print 100 * n / total " %" }' >"share.$me"
say share --finished --message "$(cat "share.$me") of $total words"
SCRIPT
chmod +x partition.sh

# Somebody wants to know when the last phase begins, and there is not even a job yet.
(plimsoll job barrier words share started --wait-for-job --timeout 1m --quiet && touch begun) &

# Partition 2 has no input at first, and says so: the others, which wait for it, hear of it at once.
mv input.2 input.later
for n in 0 1 3; do ./partition.sh "$n" "$partitions" >/dev/null 2>"log.$n" & pids="${pids:-} $!"; done
plimsoll job set words --partition 2 --partitions "$partitions" --tag count --error "input.2 is missing" --quiet
for pid in $pids; do
  code=0 && wait "$pid" || code=$?
  [ "$code" -eq 30 ]
done
cat log.0
plimsoll job show words

# The second time, everything is there. What was done is done again, and is the same.
mv input.later input.2
plimsoll job set words --partition 2 --tag count --started --quiet >/dev/null
for n in $(seq 0 $((partitions - 1))); do ./partition.sh "$n" "$partitions" >/dev/null & done
plimsoll job watch words --tag share --until finished
wait
[ -f begun ]
plimsoll job list
[ "$(cat share.? | awk '{ n += $1 } END { print n }')" = 100 ]
plimsoll job delete words --yes
