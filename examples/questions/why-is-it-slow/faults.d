fbt::do_page_fault:entry
{
	self->from = timestamp;
}

fbt::do_page_fault:return
/self->from/
{
	@[execname] = quantize(timestamp - self->from);
	self->from = 0;
}
