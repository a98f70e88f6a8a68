# SPDX-License-Identifier: GPL-2.0-or-later
# Gives the one `ret` of each function in `names` the global symbol NAME_leave, in the compiler's
# output: so a probe on a function's exit needs no offset that the next compiler would change.
BEGIN {
	n = split(names, list, " ")
	for (i = 1; i <= n; i++)
		wanted[list[i]] = 1
}
$1 == ".type" && $3 == "@function" {
	function_name = substr($2, 1, length($2) - 1)
}
/^\tret$/ && function_name in wanted {
	if (found[function_name]++) {
		print FILENAME ": " function_name " has two exits" > "/dev/stderr"
		exit 1
	}
	print "\t.globl\t" function_name "_leave"
	print function_name "_leave:"
}
{ print }
