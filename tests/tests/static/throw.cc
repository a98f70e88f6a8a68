// SPDX-License-Identifier: GPL-2.0-or-later
// Throws, and says what it has caught.
#include <cstdio>
#include <typeinfo>

struct Oops {
	long code;
};

__attribute__((noinline)) void fail(long code)
{
	throw Oops{code};
}

int main()
{
	for (long n = 1; n <= 2; n++) {
		try {
			fail(n);
		} catch (Oops &oops) {
			std::printf("caught %p %p\n", (void *)&oops, (void *)&typeid(Oops));
		}
	}
}
