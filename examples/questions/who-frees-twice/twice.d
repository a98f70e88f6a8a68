fbt::kmalloc:return
{
	freed[arg1] = 0;
}

fbt::kfree:entry
{
	freed[arg0]++;
}

fbt::kfree:entry
/freed[arg0] > 1/
{
	printf("%x is freed twice\n", arg0);
	stack();
}
