fbt::do_fork:entry
{
	@[execname, pid] = count();
}
