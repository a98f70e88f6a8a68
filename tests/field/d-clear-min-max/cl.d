BEGIN { @m = min(5); @x = max(-5); @n = count(); clear(@m); clear(@x); clear(@n); }
BEGIN { printf("cleared: "); printa("%@d ", @m); printa("%@d ", @x); printa("%@d\n", @n); }
BEGIN { @m = min(7); @x = max(-7); printf("again: "); printa("%@d ", @m); printa("%@d\n", @x); }
BEGIN { @u = min((uint64_t)-1); printf("largest: "); printa("%@u\n", @u); exit(0); }
