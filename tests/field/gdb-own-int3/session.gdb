# Stops at each of the five, and then at the end of the run.
set confirm off
break *trap
continue
continue
continue
continue
continue
continue
printf "the handler ran %d times\n", (int)count
monitor digest
kill
