// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that share CPUs, on an architecture made of the host's threads: each vCPU is a thread, and so is the stack on which
//! a CPU boots; of a CPU's threads one runs, and changing stacks is to let another one run instead.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use spin::Once;
use turnstile_sched::Class;
use turnstile_threads::{Architecture, Queues, Scheduler, System, Tenant, Thread, arrive, run, start, wait};
use turnstile_vm::attention::{Attention, KickToken, Reasons};

const CPUS: usize = 2;
const VCPUS: usize = 5;
/// How often each vCPU passes the ball on.
const ROUNDS: u64 = 2000;
/// Nobody.
const NONE: usize = usize::MAX;

struct Cpu {
    index: usize,
    scheduler: Once<Scheduler<Vcpu, Cpu, ()>>,
    /// Whether it has been interrupted.
    interrupted: Mutex<bool>,
    interrupt: Condvar,
    /// When its timer rings.
    schedule: Mutex<Option<u64>>,
    resident: AtomicUsize,
}

struct Vcpu {
    number: usize,
    attention: Attention,
    thread: Task,
    /// The balls it has got.
    balls: AtomicU64,
    /// The CPU in whose registers something of it is.
    left_in: AtomicUsize,
    done: AtomicBool,
}

/// A stack: a thread that goes on, on the CPU that it is told.
struct Task {
    common: Thread,
    go: Mutex<Sender<&'static Cpu>>,
    begin: Mutex<Option<Receiver<&'static Cpu>>>,
}

impl AsRef<Thread> for Task {
    fn as_ref(&self) -> &Thread {
        &self.common
    }
}

thread_local! {
    static THIS: Cell<Option<&'static Cpu>> = const { Cell::new(None) };
    /// Where this thread is told to go on; the one on which a CPU boots never is.
    static GATE: Cell<Option<Receiver<&'static Cpu>>> = const { Cell::new(None) };
}

static SYSTEM: Once<System<Vcpu, Cpu>> = Once::new();
static VCPUS_OF_ALL: Once<Vec<&'static Vcpu>> = Once::new();
static BEGIN: Once<Instant> = Once::new();

fn stop_here() {
    let gate = GATE.take();
    // Without a gate the sender is gone at once: this thread stays here.
    let Some(cpu) = gate.as_ref().and_then(|gate| gate.recv().ok()) else {
        loop {
            std::thread::park();
        }
    };
    GATE.set(gate);
    THIS.set(Some(cpu));
}

struct Host;

impl Queues for Host {
    type Cpu = Cpu;
    type Vcpu = Vcpu;
    type Thread = Task;
    type Residue = ();

    fn system() -> &'static Once<System<Vcpu, Cpu>> {
        &SYSTEM
    }

    fn this() -> &'static Cpu {
        THIS.get().expect("a thread of a CPU")
    }

    fn index(cpu: &Cpu) -> usize {
        cpu.index
    }

    fn kick_token(cpu: &Cpu) -> KickToken {
        cpu.index as u64
    }

    fn scheduler(cpu: &Cpu) -> &Once<Scheduler<Vcpu, Cpu, ()>> {
        &cpu.scheduler
    }

    fn attention(vcpu: &Vcpu) -> &Attention {
        &vcpu.attention
    }

    fn thread(vcpu: &Vcpu) -> Option<&Task> {
        Some(&vcpu.thread)
    }

    fn kick(token: KickToken) {
        Self::reschedule(token);
    }

    fn ticks() -> u64 {
        BEGIN.call_once(Instant::now).elapsed().as_nanos() as u64
    }

    fn reschedule(token: KickToken) {
        let cpu = CPUS_OF_ALL.get().unwrap()[token as usize];
        *cpu.interrupted.lock().unwrap() = true;
        cpu.interrupt.notify_one();
    }
}

impl Architecture for Host {
    type Interrupt = ();

    fn set_schedule(at: Option<u64>) {
        *Self::this().schedule.lock().unwrap() = at;
    }

    fn pause() {
        let cpu = Self::this();
        let until = *cpu.schedule.lock().unwrap();
        let patience = until.map_or(u64::MAX / 2, |until| until.saturating_sub(Self::ticks()));
        let interrupted = cpu.interrupted.lock().unwrap();
        let wait = cpu.interrupt.wait_timeout_while(interrupted, Duration::from_nanos(patience), |is| !*is);
        *wait.unwrap().0 = false;
    }

    fn idle() {
        Self::pause();
    }

    fn share_cpu() {}

    fn waited_for(_: Option<&'static Vcpu>, (): &mut (), _: bool) {}

    fn prepare(vcpu: &'static Vcpu) {
        let gate = vcpu.thread.begin.lock().unwrap().take();
        std::thread::spawn(move || {
            GATE.set(gate);
            stop_here();
            arrive::<Host>();
            live(vcpu);
        });
    }

    fn put(vcpu: &'static Vcpu, _: &'static Task) -> Option<u64> {
        let cpu = Self::this();
        assert_eq!(cpu.resident.swap(NONE, Ordering::Relaxed), vcpu.number, "the one that runs");
        vcpu.left_in.store(cpu.index, Ordering::Relaxed);
        None
    }

    fn load(vcpu: &'static Vcpu) {
        let cpu = Self::this();
        vcpu.attention.load(Self::kick_token(cpu));
        turnstile_threads::resident::<Self>(vcpu, &vcpu.thread, |(), _| {});
        assert_eq!(cpu.resident.swap(vcpu.number, Ordering::Relaxed), NONE, "one at a time");
        let left = vcpu.left_in.load(Ordering::Relaxed);
        assert!(left == NONE || left == cpu.index, "it has left something in another CPU");
    }

    fn depart(vcpu: &'static Vcpu) {
        let left = vcpu.left_in.swap(NONE, Ordering::Relaxed);
        assert!(left == NONE || left == Self::this().index, "only its last CPU can collect it");
    }

    fn switch_stack(_: &AtomicU64, to: &'static Vcpu) {
        to.thread.go.lock().unwrap().send(Self::this()).unwrap();
        stop_here();
    }
}

static CPUS_OF_ALL: Once<Vec<&'static Cpu>> = Once::new();

/// What a vCPU does: it waits for a ball, and passes it on, to its neighbour or across. Beside that it must be resident.
fn live(vcpu: &'static Vcpu) {
    let others = VCPUS_OF_ALL.get().unwrap();
    let mut passed = 0;
    loop {
        while vcpu.balls.load(Ordering::Acquire) > passed {
            assert_eq!(Host::this().resident.load(Ordering::Relaxed), vcpu.number);
            passed += 1;
            if passed <= ROUNDS {
                let step = if passed.is_multiple_of(3) { 2 } else { 1 };
                let next = others[(vcpu.number + step) % VCPUS];
                next.balls.fetch_add(1, Ordering::Release);
                turnstile_threads::notify::<Host>(next, next.attention.post(Reasons::INBOX));
            }
        }
        vcpu.done.store(passed >= ROUNDS, Ordering::Relaxed);
        if vcpu.attention.take().contains(Reasons::RESCHEDULE) {
            turnstile_threads::reschedule::<Host>(vcpu, &vcpu.thread);
        }
        let wants = || vcpu.attention.is_pending();
        if !wants() {
            // As the interrupt handlers do that serve a CPU: it may be about the run queue.
            wait::<Host>(vcpu, &vcpu.thread, wants, |()| vcpu.attention.raise(Reasons::RESCHEDULE));
        }
    }
}

#[test]
fn no_wake_is_lost_and_one_vcpu_runs_at_a_time() {
    let cpus = CPUS_OF_ALL.call_once(|| {
        let cpu = |index| Cpu {
            index,
            scheduler: Once::new(),
            interrupted: Mutex::new(false),
            interrupt: Condvar::new(),
            schedule: Mutex::new(None),
            resident: AtomicUsize::new(NONE),
        };
        (0..CPUS).map(|index| &*Box::leak(Box::new(cpu(index)))).collect()
    });
    THIS.set(Some(cpus[0]));
    let vcpus = VCPUS_OF_ALL.call_once(|| {
        let vcpu = |number| {
            let (go, begin) = channel();
            let thread = Task {
                common: Thread::new(number as u32),
                go: Mutex::new(go),
                begin: Mutex::new(Some(begin)),
            };
            Vcpu {
                number,
                attention: Attention::new(),
                thread,
                // A ball for each, so that they all have something to do at once.
                balls: AtomicU64::new(1),
                left_in: AtomicUsize::new(NONE),
                done: AtomicBool::new(false),
            }
        };
        (0..VCPUS).map(|number| &*Box::leak(Box::new(vcpu(number)))).collect()
    });
    let tenants = vcpus.iter().map(|vcpu| Tenant {
        vcpu: *vcpu,
        class: if vcpu.number == 0 { Class::RealTime { priority: 1 } } else { Class::Fair { weight: 100 } },
        cpus: if vcpu.number == 1 {
            [1].into()
        } else {
            [vcpu.number as u32 % 2, 1 - vcpu.number as u32 % 2].into()
        },
    });
    start::<Host>(tenants.collect(), cpus, 1_000_000_000);
    for cpu in cpus {
        std::thread::spawn(move || {
            THIS.set(Some(cpu));
            run::<Host>();
        });
    }
    let begin = Instant::now();
    while !vcpus.iter().all(|vcpu| vcpu.done.load(Ordering::Relaxed)) {
        let passed: Vec<_> = vcpus.iter().map(|vcpu| vcpu.balls.load(Ordering::Relaxed)).collect();
        assert!(begin.elapsed() < Duration::from_secs(120), "they are stuck at {passed:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
