# Sourced by what runs tests in parts, each of which ends with "N passed, N failed": part() and their sums.
# shellcheck shell=bash
passed=0
failed=0
seconds=() # of each part

# part NAME COMMAND WORD...: runs it, shows its output as it comes, and adds its counts to the sums. One without a closing line
# counts as one; one that fails and counts no failure, too.
part() {
	local name=$1 began=$SECONDS line code good='' bad='' sums
	shift
	sums=$(mktemp) || return 1
	echo "==== $name"
	"$@" 2>&1 | while IFS= read -r line || [ -n "$line" ]; do
		if [[ $line =~ ^([0-9]+)' passed, '([0-9]+)' failed'$ ]]; then
			echo "${BASH_REMATCH[1]} ${BASH_REMATCH[2]}" >"$sums"
		else
			printf '%s\n' "$line"
		fi
	done
	code=${PIPESTATUS[0]}
	read -r good bad <"$sums"
	rm -f "$sums"
	[ -n "$good" ] || good=$((code == 0)) bad=0
	[ "$code" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
	passed=$((passed + good))
	failed=$((failed + bad))
	seconds+=("$name $((SECONDS - began))")
	echo "==== $name: $good passed, $bad failed, $((SECONDS - began)) s"
}

# Ends with the sums of all parts. As an exit status: did all pass?
sum_of_parts() {
	local all
	printf -v all '%s, ' "${seconds[@]}"
	echo "seconds: ${all%, }; altogether $SECONDS"
	echo "$passed passed, $failed failed"
	[ "$failed" -eq 0 ]
}
