// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The longer texts of the help.

pub const EXITS_HELP: &str = "A guest takes about 22,000 interrupts in one second of virtual time: from its timer, CPUs and devices. \
It is our own guest, which does almost nothing else, or Debian's Linux, which also halts, sets timers and drives its devices. \
It runs without and with paravirtual EOI. Turnstile's own statistics and KVM's tracepoints count what happens. \
The table has the same lines as the table in the proposal of paravirtual EOI for Linux.

Exit codes: 0 counted; 1 a run failed; 2 the command line is wrong; 3 something is missing on this machine.";

/// What the exit codes of every command mean.
pub const EXIT_CODES: &str = "Exit codes:
  0  it worked
  1  something that was tried failed: a VM crashed, a test failed, a budget was exceeded, QEMU died
  2  the command line or a configuration file is wrong
  3  something is missing on this machine; `turnstile doctor` says what";

/// What only a checkout has, and another program does.
pub const DEVELOPERS: &str = "For developers, in a checkout:
  ./x test     Run the test suite
  ./x mutants  Change the code in small ways, and say which changes no test notices
  ./x lines    Count the lines of code of each architecture's image, by layer
  ./x package  Make a Debian package and an archive of what runs without a checkout";

pub const RUN_HELP: &str = "\
Keys, after Ctrl-A: h help · n p next and previous VM · 1-9 that VM · a all together · r restart · s stop · \
z pause and go on · k kill its services · x leave · Ctrl-A sends itself.

In a pipe there are no keys: every VM's lines go to standard output, with the VM's name when there are \
several, and standard input goes to the first VM. Messages of the hypervisor and the tool go to standard error. Input \
that arrives before the guest reads its console may be lost: wait for its prompt.

Exit codes: 0 all VMs powered off, or you left; 1 a VM crashed, or QEMU died; 2 FILE is wrong; 3 something is \
missing on this machine; 128+n after signal n.";

pub const CONSOLE_HELP: &str = "\
MACHINE is its file's name without the extension, its process number, or both as `turnstile ls` lists it. The VM is in front \
at first. What it wrote last is shown, then what it writes. Several can attach at once: all see the same, and all can type.

The keys are those of `run`; Ctrl-A x leaves, and the machine goes on. In a pipe there are no keys: the lines of all VMs, or of VM \
alone, go to standard output, and standard input goes to VM or the first one.

Exit codes: 0 you left, or the machine ended; 1 no such machine runs, or it does not answer; 2 there is no such VM; \
128+n after signal n.";

pub const PORT_HELP: &str = "\
Bytes go as they are, in both directions. One program at a time is at a port; its guest finds that it is open. What the guest has not \
taken holds back what follows. The command ends when the VM stops, at Ctrl-C, and with --send when the guest has taken all of standard \
input. Programs can connect to the port's Unix socket instead: `turnstile run` and `turnstile ls --json` say where it is.

Exit codes: 0 the VM has stopped, or the guest has taken all; 1 no such machine runs, or another program is there; 2 there is no such \
VM or port.";

pub const BALLOON_HELP: &str = "\
SIZE is what VM is to keep, such as 128MiB. The driver of its balloon takes the rest from its guest, which gives up caches for it, and swaps \
if it must. Whole blocks of 2 MiB go back to the pool. All of its memory, or more, ends that; so does the end of its life. VM needs `balloon = true`. \
`turnstile ls` shows how much it has.

The command returns when the hypervisor has accepted it. The guest takes its time, and may keep more than SIZE.

Exit codes: 0 it is accepted; 1 no such machine runs, the VM does not run, or it has no balloon; 2 there is no such VM, or SIZE is none.";

pub const STOP_HELP: &str = "\
Without VM the machine is powered off. It also ends when its last VM has been stopped. A VM that is stopped stays so \
until `turnstile start`.

Exit codes: 0 it has stopped; 1 no such machine runs, the VM does not run, or it has not stopped for 30 seconds; 2 there is no such VM.";

pub const TOP_HELP: &str = "\
Without FILE it reads from a running `turnstile run`, which keeps its consoles: start that with \
--statistics, or write `statistics = true` for its VMs. With FILE it boots the machine itself, with the statistics of \
all VMs on and without their consoles.

Keys: h help · s sort · r reverse · f filter by VM · v fold the vCPUs · t times since the start · space pause · \
+ - interval · arrows scroll · q quit.

Rates and shares use the machine's own counter. A cost is the time from the exit to the entry, without the \
statistics' own work; waiting does not count.

Exit codes: 0 you left; 1 the machine failed, or none is running; 2 the command line or FILE is wrong; \
3 something is missing on this machine; 128+n after signal n.";

pub const BENCH_HELP: &str = "\
The numbers are instructions executed outside the guest for one operation, counted by a QEMU plugin. They are \
exact and repeatable. They are not cycles. Columns with a star are recorded figures: --subjects measures them.

Exit codes: 0 measured (and within the budgets, with --check); 1 a measurement failed; the other figures are \
shown; 2 the command line is wrong; 3 something is missing on this machine.";

pub const METER_HELP: &str = "\
Starts QEMU with the meter on this terminal. When it ends, lists the visits outside the guest by CPU, reason \
and place. The meter recognizes a guest by privilege (arm64: EL1 and EL0 with stage 2; POWER: MSR[HV] clear) or, on x86, by VMRUN and the \
control block. \
For repeatable counts, add to QEMU's arguments: -accel tcg,thread=single -icount shift=0,sleep=off \
-seed 1 -rtc base=2024-01-01T00:00:00,clock=vm.

Exit codes: 0 measured; 1 QEMU failed, or no guest was seen; 2 the command line is wrong; 3 something is missing on this \
machine.";
