/* How long do_fork takes, in instructions, by the name of the process. */

fbt::do_fork:entry
{
        self->start = icount;
}

fbt::do_fork:return
/self->start/
{
        @[execname] = quantize(icount - self->start);
        self->start = 0;
}
