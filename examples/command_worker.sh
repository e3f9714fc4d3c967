#!/usr/bin/env bash
# A fleet of shell scripts: two workers make thumbnails of images, and index each of them in the next
# step. One image is broken, and one is not readable at first. Needs nothing but plain tools.
#
#   examples/command_worker.sh
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet -p plimsoll-cli --bin plimsoll
PATH=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd):$PATH

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir images thumbs index

# Twelve images of 32 by 32 pixels, as text, and one that is none.
for n in $(seq 12); do
  awk -v n="$n" 'BEGIN { print "P2\n32 32\n255"; for (i = 0; i < 1024; i++) print (i * n) % 256 }' \
    >"images/$n.pgm"
done
echo "no image" >images/broken.pgm

# The command: one script for both kinds of task.
cat >work.sh <<'SCRIPT'
#!/bin/sh
say() { echo "$@" >>"$PLIMSOLL_CONTROL"; }
read -r name
case $PLIMSOLL_KIND in
thumbnail)
  # 65: the input is wrong, and no other attempt will help.
  [ "$(head -n 1 "images/$name")" = P2 ] || { echo "error: $name is no image" >&2; exit 65; }
  if [ "$name" = 7.pgm ] && [ "$PLIMSOLL_ATTEMPT" = 1 ]; then
    echo "warn: the disk is slow today" >&2
    say retry-after 0s
    exit 1
  fi
  say progress 1/2 shrinking
  # Every fourth pixel of every fourth line. Whoever runs this twice writes the same file twice.
  awk 'NR == 1 { print } NR == 2 { print $1 / 4, $2 / 4 } NR == 3 { print }
       NR > 3 { i = NR - 4; if (i % 4 == 0 && int(i / 32) % 4 == 0) print }' \
    "images/$name" >"thumbs/$name.$PLIMSOLL_FENCE"
  mv "thumbs/$name.$PLIMSOLL_FENCE" "thumbs/$name"
  say progress 2/2 done
  say set output_files "thumbs/$name"
  # The next step is submitted in the commit that completes this one.
  say submit images index "$name"
  ;;
index)
  cksum <"thumbs/$name" >"index/$name"
  cat "index/$name"
  ;;
esac
SCRIPT
chmod +x work.sh

export PLIMSOLL_STORE=${PLIMSOLL_STORE:-sqlite:fleet.db}
# With a key, whoever runs the same pipe again submits nothing twice.
(cd images && ls) | sed 's/.*/{"text":"&","key":"thumbnail\/&"}/' |
  plimsoll task submit images thumbnail --lines - --quiet

plimsoll work --queue images --name one --concurrency 2 --until-empty -- ./work.sh &
first=$!
plimsoll work --queue images --name two --concurrency 2 --until-empty -- ./work.sh
wait "$first"
# What the first of them had under way when the other found nothing.
plimsoll work --queue images --until-empty -- ./work.sh

plimsoll queue list
plimsoll task steps key:thumbnail/7.pgm
plimsoll task logs key:thumbnail/broken.pgm --level warn

thumbs=$(find thumbs -name '*.pgm' | wc -l) indexed=$(find index -name '*.pgm' | wc -l)
echo "$thumbs thumbnails, $indexed in the index"
[ "$thumbs" -eq 12 ] && [ "$indexed" -eq 12 ]
