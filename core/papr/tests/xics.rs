// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XICS against a reference that keeps everything in plain fields and decides anew, after each step, what has to be presented.

use std::cell::RefCell;

use proptest::prelude::*;
use turnstile_papr::xics::{IPI, Icp, Ics, NEVER, Servers};

const VCPUS: u32 = 3;
const FIRST: u32 = 16;
const SOURCES: u32 = 3;

/// A VM with its presentation controllers, which counts whom it has told.
struct Vm {
    icps: Vec<Icp>,
    ics: Ics,
    told: RefCell<Vec<u32>>,
}

impl Servers for Vm {
    fn icp(&self, server: u32) -> Option<&Icp> {
        self.icps.get(server as usize)
    }

    fn notify(&self, server: u32) {
        self.told.borrow_mut().push(server);
    }
}

impl Vm {
    fn new() -> Self {
        Self {
            icps: (0..VCPUS).map(|_| Icp::new()).collect(),
            ics: Ics::new(FIRST, SOURCES as usize),
            told: RefCell::default(),
        }
    }
}

/// The reference: what is presented is a mark on its origin.
#[derive(Clone, Debug)]
struct Reference {
    current: Vec<u8>,
    request: Vec<u8>,
    /// What is presented to each vCPU, and its priority.
    presented: Vec<Option<(u32, u8)>>,
    sources: Vec<RefSource>,
}

#[derive(Clone, Debug)]
struct RefSource {
    server: usize,
    priority: u8,
    saved: u8,
    pending: bool,
}

impl Reference {
    fn new() -> Self {
        let vcpus = VCPUS as usize;
        let source = RefSource { server: 0, priority: NEVER, saved: NEVER, pending: false };
        Self {
            current: vec![0; vcpus],
            request: vec![NEVER; vcpus],
            presented: vec![None; vcpus],
            sources: vec![source; SOURCES as usize],
        }
    }

    /// Takes back what is presented.
    fn withdraw(&mut self, vcpu: usize) {
        if let Some((source, _)) = self.presented[vcpu].take()
            && source != IPI
        {
            self.sources[(source - FIRST) as usize].pending = true;
        }
    }

    /// Presents what is pending and better than what is presented, until nothing is.
    fn settle(&mut self) {
        loop {
            let mut best: Option<(usize, u32, u8)> = None;
            for vcpu in 0..VCPUS as usize {
                let limit =
                    self.presented[vcpu].map_or(NEVER, |(_, priority)| priority).min(self.current[vcpu]);
                let mut consider = |number, priority| {
                    if priority < limit && best.is_none_or(|(at, _, other)| at == vcpu && priority < other) {
                        best = Some((vcpu, number, priority));
                    }
                };
                consider(IPI, self.request[vcpu]);
                for (number, source) in (FIRST..).zip(&self.sources) {
                    if source.pending && source.server == vcpu {
                        consider(number, source.priority);
                    }
                }
            }
            let Some((vcpu, number, priority)) = best else { return };
            // Its mark goes first: it may displace itself, with a priority that has changed since, and came twice then.
            if number != IPI {
                self.sources[(number - FIRST) as usize].pending = false;
            }
            self.withdraw(vcpu);
            self.presented[vcpu] = Some((number, priority));
        }
    }

    fn accept(&mut self, vcpu: usize) -> u32 {
        let current = u32::from(self.current[vcpu]) << 24;
        match self.presented[vcpu].take() {
            Some((source, priority)) => {
                self.current[vcpu] = priority;
                current | source
            }
            None => current,
        }
    }

    fn set_priority(&mut self, vcpu: usize, priority: u8) {
        self.current[vcpu] = priority;
        if self.presented[vcpu].is_some_and(|(_, presented)| presented >= priority) {
            self.withdraw(vcpu);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Accept(usize),
    Priority(usize, u8),
    /// Ends with what was accepted last.
    End(usize),
    Request(usize, u8),
    Trigger(u32),
    Route(u32, u32, u8),
    Mask(u32, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let vcpu = 0..VCPUS as usize;
    // Few priorities, so that they meet; without ties between different origins, whose order is nobody's business.
    let source = FIRST..FIRST + SOURCES;
    prop_oneof![
        3 => vcpu.clone().prop_map(Step::Accept),
        3 => vcpu.clone().prop_map(Step::End),
        2 => (vcpu.clone(), prop::sample::select(vec![0u8, 2, 4, 6, 8, NEVER]))
            .prop_map(|(vcpu, priority)| Step::Priority(vcpu, priority)),
        3 => (vcpu, prop::sample::select(vec![1u8, 5, NEVER]))
            .prop_map(|(vcpu, priority)| Step::Request(vcpu, priority)),
        3 => source.clone().prop_map(Step::Trigger),
        2 => (source.clone(), 0..VCPUS, prop::sample::select(vec![0u8, 4, NEVER]))
            .prop_map(|(source, server, group)| {
                let priority = if group == NEVER { NEVER } else { 2 + group + (source - FIRST) as u8 * 16 };
                Step::Route(source, server, priority)
            }),
        1 => (source, any::<bool>()).prop_map(|(source, masked)| Step::Mask(source, masked)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn every_history_presents_what_the_reference_presents(steps in prop::collection::vec(step(), 1..80)) {
        let (vm, mut reference) = (Vm::new(), Reference::new());
        let mut accepted = [0u32; VCPUS as usize];
        for step in steps {
            let before: Vec<_> = vm.icps.iter().map(Icp::is_presented).collect();
            vm.told.borrow_mut().clear();
            match step.clone() {
                Step::Accept(vcpu) => {
                    let xirr = vm.icps[vcpu].accept();
                    prop_assert_eq!(xirr, reference.accept(vcpu));
                    if xirr & 0xff_ffff != 0 {
                        accepted[vcpu] = xirr;
                    }
                }
                Step::End(vcpu) => {
                    let xirr = accepted[vcpu];
                    vm.ics.settle(vcpu as u32, vm.icps[vcpu].end(xirr), &vm);
                    reference.set_priority(vcpu, (xirr >> 24) as u8);
                }
                Step::Priority(vcpu, priority) => {
                    vm.ics.settle(vcpu as u32, vm.icps[vcpu].set_priority(priority), &vm);
                    reference.set_priority(vcpu, priority);
                }
                Step::Request(vcpu, priority) => {
                    vm.ics.settle(vcpu as u32, vm.icps[vcpu].set_request(priority), &vm);
                    reference.request[vcpu] = priority;
                }
                Step::Trigger(source) => {
                    vm.ics.trigger(source, &vm);
                    reference.sources[(source - FIRST) as usize].pending = true;
                }
                Step::Route(source, server, priority) => {
                    prop_assert!(vm.ics.set_route(source, server, priority, &vm));
                    let source = &mut reference.sources[(source - FIRST) as usize];
                    (source.server, source.priority, source.saved) = (server as usize, priority, priority);
                }
                Step::Mask(source, masked) => {
                    prop_assert!(vm.ics.set_masked(source, masked, &vm));
                    let source = &mut reference.sources[(source - FIRST) as usize];
                    source.priority = if masked { NEVER } else { source.saved };
                }
            }
            reference.settle();
            for (vcpu, &before) in before.iter().enumerate() {
                let presented = reference.presented[vcpu].map_or(0, |(source, _)| source);
                let expected = u32::from(reference.current[vcpu]) << 24 | presented;
                let (xirr, request) = vm.icps[vcpu].poll();
                prop_assert_eq!((xirr, request), (expected, reference.request[vcpu]), "vCPU {} after {:?}", vcpu, step);
                prop_assert_eq!(vm.icps[vcpu].is_presented(), presented != 0);
                if presented != 0 && !before {
                    prop_assert!(vm.told.borrow().contains(&(vcpu as u32)), "vCPU {} was not told", vcpu);
                }
            }
        }
    }
}

#[test]
fn what_there_is_not_is_refused() {
    let vm = Vm::new();
    assert!(!vm.ics.set_route(FIRST - 1, 0, 5, &vm));
    assert!(!vm.ics.set_route(FIRST + SOURCES, 0, 5, &vm));
    assert!(!vm.ics.set_route(FIRST, VCPUS, 5, &vm));
    assert!(!vm.ics.set_masked(0, true, &vm));
    assert_eq!(vm.ics.route(u32::MAX), None);
    vm.ics.trigger(u32::MAX, &vm);
    assert_eq!(vm.ics.route(FIRST), Some((0, NEVER)));
}
