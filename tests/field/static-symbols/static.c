/* A program with pointers of static probes that were declared without the header. */
void (*volatile systemtap_probe_n__good)(long) = 0;
void (*volatile systemtap_probe_request)(long) = 0;
int main(void)
{
	if (systemtap_probe_n__good)
		systemtap_probe_n__good(1);
	if (systemtap_probe_request)
		systemtap_probe_request(2);
	return 0;
}
