/* SPDX-License-Identifier: GPL-2.0-or-later
 * From the loader to the first program, and the end. */
#include "driver_trace.h"
#include "net.h"

#define MULTIBOOT_MAGIC 0x2BADB002
#define MULTIBOOT_MEMORY 1
#define MULTIBOOT_CMDLINE 4
#define MULTIBOOT_MODULES 8
#define MODULE_SLOTS 8

struct multiboot_info {
	u32 flags, mem_lower, mem_upper, boot_device, cmdline, mods_count, mods_addr;
};

struct multiboot_module {
	u32 start, end, string, reserved;
};

/* _image_size is an absolute symbol: its address is the number. */
extern const u8 _stext[], _etext[], _end[], _image_size[];

static struct trapline_module modules[MODULE_SLOTS] = {
	{ .name = "vmlinux", .base = (word)_stext, .size = (word)_image_size, .kind = 1 },
};

const struct trapline_os_info trapline_os_info = {
	.magic = "TRAPOS1",
	.size = sizeof(struct trapline_os_info),
	.word_size = sizeof(word),
	.task_pid = __builtin_offsetof(struct task_struct, pid),
	.task_uid = __builtin_offsetof(struct task_struct, uid),
	.task_comm = __builtin_offsetof(struct task_struct, comm),
	.comm_size = COMM_SIZE,
	.task_state = __builtin_offsetof(struct task_struct, state),
	.task_next = __builtin_offsetof(struct task_struct, next),
	.current_task = (word)&current_task,
	.task_list = (word)&task_list,
	.modules = (word)modules,
	.module_slots = MODULE_SLOTS,
	.module_stride = sizeof(struct trapline_module),
	.jiffies = (word)&jiffies,
};

/* Whether the last component of the command line's first word begins with "appln". */
static int is_appln(const char *line)
{
	static const char name[] = "appln";
	const char *start = line;
	u32 i = 0;

	for (; *line && *line != ' '; line++)
		if (*line == '/')
			start = line + 1;
	while (name[i] && start[i] == name[i])
		i++;
	return !name[i];
}

/* Finds the program among the loader's modules, and the first byte after everything it loaded. */
static const struct multiboot_module *find_program(const struct multiboot_info *info, word *free)
{
	const struct multiboot_module *module = virt(info->mods_addr), *found = 0;

	if (!(info->flags & MULTIBOOT_MODULES))
		return 0;
	for (u32 i = 0; i < info->mods_count; i++, module++) {
		if (module->end > DIRECT_MAP)
			panic("a module lies above 64 MiB");
		if (module->end > *free)
			*free = module->end;
		if (!found && is_appln(virt(module->string)))
			found = module;
	}
	return found;
}

/* Where memory ends. The loader's tables may be overwritten from here on: they have been read. */
static word memory_end(const struct multiboot_info *info)
{
	word end = 0x100000 + ((info->flags & MULTIBOOT_MEMORY) ? info->mem_upper : 0x3c00) * 1024;

	return end < DIRECT_MAP ? end : DIRECT_MAP;
}

static void idle(void)
{
	while (tasks_alive()) {
		__asm__ volatile("cli" : : : "memory");
		schedule();
		if (tasks_alive())
			__asm__ volatile("sti; hlt" : : : "memory");
	}
	__asm__ volatile("cli" : : : "memory");
}

/* Lists the module and lets it register; its code came with the kernel's. */
static void insmod(const struct module_code *module)
{
	struct trapline_module *slot = &modules[2];

	for (u32 i = 0; module->name[i]; i++)
		slot->name[i] = module->name[i];
	slot->base = (word)module->start;
	slot->size = module->end - module->start;
	slot->kind = 1;
	TRACE(kernel_trace, DTI_LEVEL_NOTICE, "module %s", module->name);
	printk("vmlinux: module %s at %x\n", module->name, slot->base);
	module->init();
}

static void rmmod(const struct module_code *module)
{
	module->exit();
	modules[2].kind = 0;
}

static void report(u32 text_at_boot, u32 pages_at_boot)
{
	const struct counters *c = &counters;
	u32 text = fnv1a(_stext, _etext);

	printk("vmlinux: %u forks, %u page faults, %u general protections, %u int3, %u invalid opcodes\n",
	       c->forks, c->page_faults, c->protections, c->breakpoints, c->invalid_opcodes);
	printk("vmlinux: %u kmallocs, %u kfrees, %u swap_outs\n", c->kmallocs, c->kfrees,
	       c->swap_outs);
	printk("vmlinux: %u pages to the swap disk, %u back\n", c->pages_out, c->pages_in);
	printk("vmlinux: %u ext2_file_writes, %u vortex_opens, %u vortex_start_xmits, %u vortex_closes\n",
	       c->file_writes, c->vortex_opens, c->vortex_xmits, c->vortex_closes);
	printk("vmlinux: %u system calls, %u yields\n", c->syscalls, c->yields);
	printk("vmlinux: sdt sites ran %u %u %u %u %u %u times\n", c->sdt[0], c->sdt[1], c->sdt[2],
	       c->sdt[3], c->sdt[4], c->sdt[5]);
	printk("vmlinux: %u pages taken, %u given back\n", c->pages_taken, c->pages_given);
	printk("vmlinux: %s\n", nr_free_pages == pages_at_boot ? "every page is free again"
							       : "PAGES WERE LOST");
	printk("vmlinux: text %s %x\n", text == text_at_boot ? "ok" : "CHANGED", (word)text);
	printk("vmlinux: halted after %u ticks, %u switches\n", jiffies, counters.switches);
}

void kernel_main(u32 magic, word info_address)
{
	const struct multiboot_info *info = virt(info_address);
	const struct multiboot_module *program;
	word first_free = (word)_end - KERNEL_BASE, entry, base, end;
	u32 pages;
	u32 text = fnv1a(_stext, _etext);

	arch_init();
	TRACE(kernel_trace, DTI_LEVEL_INFO, "text %x", (word)text);
	printk("vmlinux: Trapline's guest, text %x\n", (word)text);
	if (magic != MULTIBOOT_MAGIC)
		panic("not started by a Multiboot loader");
	program = find_program(info, &first_free);
	if (!program)
		panic("no module named appln");
	if (program_load(virt(program->start), program->end - program->start, &entry, &base, &end))
		panic("appln is no program for this machine");
	memcpy(modules[1].name, "appln", 6);
	modules[1].base = base;
	modules[1].size = end - base;
	modules[1].kind = 2;
	TRACE(kernel_trace, DTI_LEVEL_INFO, "appln at %x to %x", base, end);
	TRACE_OPTIONS(info->flags & MULTIBOOT_CMDLINE ? virt(info->cmdline) : "");
	memory_init(first_free, memory_end(info));
	TRACE_MEMORY_READY();
	pages = nr_free_pages;
	arch_self_test();
	insmod(&vortex_module);
	if (start_program(entry))
		panic("no memory for the first task");
	irq_init();
	idle();
	reap_orphans();
	rmmod(&vortex_module);
	report(text, pages);
	halt();
}
