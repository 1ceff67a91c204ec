// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine that does nothing but schedule, in virtual time.

use turnstile_sched::{Class, RunQueue, Shared, Thread};
use turnstile_vm::attention::{Attention, Posted, Reasons};

/// Ticks of a slice.
pub const SLICE: u64 = 1000;

/// The threads and CPUs of a simulation, and what was seen of them.
pub struct Machine<'a> {
    pub shared: &'a Shared,
    pub queues: Vec<RunQueue<'a>>,
    attention: Vec<Attention>,
    /// A kick that a CPU has not taken yet.
    kicked: Vec<bool>,
    /// After how many ticks a CPU takes the kick of another one.
    pub late: u64,
    /// When each CPU takes one that is on its way.
    under_way: Vec<Option<u64>>,
    pub now: u64,
    /// For how long each thread ran.
    pub ran: Vec<u64>,
    /// How often each thread was given away.
    pub moves: Vec<u32>,
    /// How often a CPU looked at its queue.
    pub looks: u64,
    /// Parked, as the test knows it.
    pub parked: Vec<bool>,
}

/// Describes threads: class, and the CPUs they may use; the first is home.
pub fn shared(threads: &[(Class, &[u32])], cpus: usize) -> Shared {
    let threads = threads.iter().map(|(class, cpus)| Thread::new(*class, cpus[0], (*cpus).into())).collect();
    Shared::new(threads, cpus, SLICE)
}

impl<'a> Machine<'a> {
    /// Makes a machine on which all threads want to run.
    pub fn new(shared: &'a Shared) -> Self {
        let count = shared.threads.len();
        let mut queues: Vec<_> =
            (0..shared.cpus.len()).map(|cpu| RunQueue::new(shared, cpu as u32)).collect();
        for (thread, state) in shared.threads.iter().enumerate() {
            queues[state.home() as usize].ready(thread as u32, 0);
        }
        let kicked = vec![true; queues.len()];
        let attention = (0..count).map(|_| Attention::new()).collect();
        let (ran, moves, parked) = (vec![0; count], vec![0; count], vec![false; count]);
        let (late, under_way) = (0, vec![None; queues.len()]);
        let mut machine =
            Self { shared, queues, attention, kicked, late, under_way, now: 0, ran, moves, looks: 0, parked };
        machine.settle();
        machine
    }

    /// What a CPU does when it looks.
    fn look(&mut self, cpu: usize) {
        self.looks += 1;
        let (now, queue) = (self.now, &mut self.queues[cpu]);
        queue.receive(now);
        while let Some(thread) = queue.expired(now) {
            if self.attention[thread as usize].wake() {
                self.parked[thread as usize] = false;
                queue.ready(thread, now);
            }
        }
        if queue.should_switch(now) {
            if let Some(current) = queue.current() {
                self.attention[current as usize].put();
            }
            queue.preempt(now);
            if let Some(next) = queue.pick(now) {
                self.attention[next as usize].load(cpu as u64 + 1);
                self.attention[next as usize].take();
            }
        }
        queue.publish(now);
        let moves = &mut self.moves;
        while let Some(kick) = queue.push(now, |thread| moves[thread as usize] += 1) {
            if let Some(target) = kick {
                self.under_way[target as usize].get_or_insert(now + self.late);
            }
            queue.publish(now);
        }
        queue.publish(now);
        if queue.current().is_none()
            && let Some(neighbour) = self.shared.busy_neighbour(cpu as u32)
        {
            self.kicked[neighbour as usize] = true;
        }
    }

    /// Lets every CPU look that was interrupted.
    pub fn settle(&mut self) {
        for _ in 0..100 {
            for (kicked, way) in self.kicked.iter_mut().zip(&mut self.under_way) {
                *kicked |= way.take_if(|at| *at <= self.now).is_some();
            }
            let Some(cpu) = self.kicked.iter().position(|kicked| *kicked) else { return };
            self.kicked[cpu] = false;
            self.look(cpu);
        }
        panic!("the CPUs keep interrupting each other");
    }

    /// Lets time pass until `end`.
    pub fn run_until(&mut self, end: u64) {
        while self.now < end {
            let deadlines: Vec<_> = self.queues.iter().map(RunQueue::deadline).collect();
            let next = deadlines
                .iter()
                .chain(&self.under_way)
                .flatten()
                .copied()
                .min()
                .unwrap_or(end)
                .clamp(self.now, end);
            for queue in &self.queues {
                if let Some(current) = queue.current() {
                    self.ran[current as usize] += next - self.now;
                }
            }
            self.now = next;
            for (cpu, deadline) in deadlines.iter().enumerate() {
                self.kicked[cpu] |= deadline.is_some_and(|deadline| deadline <= next);
            }
            self.settle();
        }
    }

    /// The CPU where `thread` runs.
    pub fn runs_on(&self, thread: usize) -> Option<usize> {
        self.queues.iter().position(|queue| queue.current() == Some(thread as u32))
    }

    /// `thread` has nothing to do, until a deadline or for good.
    pub fn park(&mut self, thread: usize, deadline: Option<u64>) {
        let Some(cpu) = self.runs_on(thread) else { return };
        self.queues[cpu].block(self.now);
        if let Some(deadline) = deadline {
            self.queues[cpu].sleep(thread as u32, deadline);
        }
        assert!(self.attention[thread].park(), "nothing was posted");
        self.parked[thread] = true;
        self.kicked[cpu] = true;
        self.settle();
    }

    /// Somebody posts to `thread`.
    pub fn wake(&mut self, thread: usize) {
        match self.attention[thread].post(Reasons::INBOX) {
            Posted::Wake => {
                self.parked[thread] = false;
                let home = self.shared.wake(thread as u32).expect("only one is woken at a time");
                self.kicked[home as usize] = true;
            }
            Posted::Kick(_) | Posted::Seen => {}
        }
        self.attention[thread].take();
        self.settle();
    }
}
