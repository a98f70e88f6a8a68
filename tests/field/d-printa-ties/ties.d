BEGIN
{
	@one["a"] = sum(1); @two["a"] = sum(2); @three["a"] = sum(8);
	@one["b"] = sum(1); @two["b"] = sum(2); @three["b"] = sum(7);
	@one["c"] = sum(1); @two["c"] = sum(1); @three["c"] = sum(9);
	@one["d"] = sum(2); @two["d"] = sum(0); @three["d"] = sum(0);
	printa("%s %@d %@d %@d\n", @one, @two, @three);
	exit(0);
}
