// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services that several VMs share.

use super::*;

#[test]
fn members_come_and_go_while_it_runs() {
    let (service, _) = shared(&[]);
    service.attach(1, vec![window(0x8000)], None).unwrap();
    access_of(&service, 1);
    let memory =
        |member, guest| (Kind::Memory, [abi::member_device(member, 0), guest, 0x1000, guest + 0x1000, 0]);
    let joined =
        |member: u64, kept| (Kind::Attach, [kept, (member + 1) << 12, member, member + 1, 10 * (member + 1)]);
    assert_eq!(events(&service), [memory(1, 0x8000), joined(1, 0)]);
    assert_eq!(heard(&service), ["attach 1: 1", "begin false", "Memory 256", "Attach 0", "Read 257"]);
    service.reset();
    service.attach(0, vec![window(0x9000)], None).unwrap();
    access_of(&service, 1);
    assert_eq!(events(&service), [memory(0, 0x9000), joined(0, 0)], "only what is new");
    assert_eq!(
        heard(&service),
        ["attach 0: 1", "Memory 0", "Attach 0", "Read 257"],
        "it does not begin anew"
    );
    service.detach(1);
    access_of(&service, 0);
    assert_eq!(heard(&service), ["detach 1", "Detach 1", "Read 1"]);
    service.kill();
    access_of(&service, 0);
    access_of(&service, 0);
    assert_eq!(events(&service), [memory(0, 0x9000), joined(0, 1)], "what is kept is for who is there");
    heard(&service);
    service.attach(1, vec![window(0x8000)], None).unwrap();
    service.detach(1);
    service.attach(1, vec![window(0x8000)], None).unwrap();
    access_of(&service, 0);
    assert_eq!(events(&service), [memory(1, 0x8000), joined(1, 0)], "a life that it never saw");
    heard(&service);
    service.detach(1);
    service.attach(1, vec![window(0xa000)], None).unwrap();
    access_of(&service, 0);
    assert_eq!(
        heard(&service)[2..],
        ["Detach 1", "Memory 256", "Attach 0", "Read 1"],
        "first the old one leaves"
    );
}

#[test]
fn who_has_left_is_told_before_who_has_come() {
    let (service, _) = shared(&[]);
    service.attach(1, vec![window(0x8000)], None).unwrap();
    access_of(&service, 1);
    heard(&service);
    service.detach(1);
    service.attach(0, vec![window(0x9000)], None).unwrap();
    access_of(&service, 0);
    let heard = heard(&service);
    let told: Vec<&str> =
        heard.iter().map(String::as_str).filter(|line| !line.starts_with(['a', 'd'])).collect();
    assert_eq!(told, ["Detach 1", "Memory 0", "Attach 0", "Read 1"]);
}

#[test]
fn who_crashes_a_shared_service_loses_what_is_kept_and_others_do_not() {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    events(&service);
    service.space.steps.lock().unwrap().extend([
        Step::Fault,
        Step::Done(0, 0),
        Step::Done(0, 0),
        Step::Fault,
    ]);
    assert_eq!(access_of(&service, 1), u64::MAX);
    assert_eq!(
        events(&service).iter().map(|(_, event)| event[0]).collect::<Vec<_>>(),
        [1, 1],
        "tried once more"
    );
    assert_eq!(said(world).last().unwrap(), "alarm 0", "what others wait for is not forgotten");
    access_of(&service, 0);
    let kept: Vec<_> = events(&service).iter().map(|(_, [kept, _, member, ..])| (*member, *kept)).collect();
    assert_eq!(kept, [(0, 1), (1, 0)]);
    // A member whose beginning crashes it is blamed for that, too.
    service.kill();
    access_of(&service, 0);
    service.space.steps.lock().unwrap().extend([Step::Done(0, 0), Step::Fault]);
    access_of(&service, 0);
    let begun: Vec<_> = events(&service).iter().map(|(_, [kept, _, member, ..])| (*member, *kept)).collect();
    assert_eq!(begun, [(0, 1), (1, 1), (0, 1), (1, 0)]);
}

#[test]
fn a_shared_service_reaches_who_is_there_alone_and_no_console() {
    let call = |call, arguments| Step::Call(call, arguments);
    let (service, world) = shared(&[
        Step::Done(0, 0),
        call(Call::Message, [0xfee0_0000, 0x31, 1]),
        call(Call::Message, [0xfee0_0000, 0x31, 2]),
        call(Call::Message, [0xfee0_0000, 0x31, u64::MAX]),
        call(Call::Decode, [abi::member_device(1, 4), 0x1000, 0x4000]),
        call(Call::Decode, [abi::member_device(0, 4), 0x1000, 0x4000]),
        call(Call::Print, [1, 0x41, 0]),
        Step::Done(7, 0),
    ]);
    service.attach(1, vec![], None).unwrap();
    assert_eq!(access_of(&service, 1), 7);
    assert_eq!(said(world), ["message 1: fee00000 31", "decode 1: 4 1000 4000"]);
    let refused = format!("resume {:?}", Some(abi::REFUSED));
    assert_eq!(heard(&service).iter().filter(|what| **what == refused).count(), 4);
}

#[test]
fn what_waits_for_a_shared_service_outlives_who_leaves() {
    let (service, _) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    heard(&service);
    // Somebody rings while another leaves.
    service.alone(|| assert!(!service.rings(4)));
    service.detach(1);
    look(&service);
    assert_eq!(heard(&service), ["detach 1", "Detach 1", "Doorbell 16"]);
}

#[test]
fn nothing_reaches_who_has_left() {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    service.detach(1);
    let message = Step::Call(Call::Message, [0xfee0_0000, 0x31, 1]);
    let decode = Step::Call(Call::Decode, [abi::member_device(1, 4), 0x1000, 0x4000]);
    service.space.steps.lock().unwrap().extend([message, decode, Step::Done(0, 0)]);
    access_of(&service, 0);
    assert!(said(world).is_empty(), "its end is not told yet, and is true");
}

/// Rings in the middle of another's event, and after that.
struct Rings<'a>(&'a Service<Script>, u64);

impl Meanwhile for Rings<'_> {
    fn interrupt(&mut self) {
        assert!(!self.0.rings(self.1), "somebody is inside");
    }

    fn wait(&mut self) {
        panic!("nobody else is there");
    }

    fn again(&mut self) {
        panic!("it is another member's");
    }
}

#[test]
fn who_rings_without_end_keeps_no_other_member_from_its_guest() {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    heard(&service);
    service.space.steps.lock().unwrap().extend([
        Step::Interrupt,
        Step::Done(0, 0),
        Step::Interrupt,
        Step::Done(0, 0),
    ]);
    let event = Event::new(Kind::Read, [abi::member_device(0, 1), 0, 1, 0, 0]);
    // SAFETY: the script needs no CPU.
    unsafe { service.access(&event, &mut Rings(&service, 5)) };
    assert_eq!(
        heard(&service),
        ["Read 1", "resume None", "Doorbell 32", "resume None"],
        "once it is handled"
    );
    assert!(!service.gate.is_inside());
    assert_eq!(said(world), ["call 2"], "then it is called itself");
    look(&service);
    assert_eq!(heard(&service), ["Doorbell 32"]);
}

#[test]
fn what_a_member_has_rung_that_pauses_is_handled_by_another() {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    heard(&service);
    service.space.steps.lock().unwrap().extend([Step::Interrupt, Step::Done(0, 0)]);
    // Member 1 rings while another is inside and handles what was there before, and pauses.
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::ALARM, &mut Rings(&service, 5)) };
    assert_eq!(said(world), ["call 2"], "it is called alone");
    heard(&service);
    access_of(&service, 0);
    assert_eq!(heard(&service), ["Read 1"], "who comes for something else leaves it");
    look(&service);
    assert_eq!(heard(&service), ["Doorbell 32"], "who was woken does not");
}

#[test]
fn a_device_of_another_member_rings_its_own_queues() {
    let first: &'static Service<Script> = Box::leak(Box::new(service(&[]).0));
    let doorbells = Doorbells { first: 0x100, size: 12, by: turnstile_service::image::BY_PLACE };
    let served = Served { bell: 8, ..Served::nowhere(5, doorbells, first) };
    assert_eq!([0x100, 0x108, 0x10c].map(|offset| served.queue(offset, 0)), [Some(8), Some(10), None]);
}

/// The queue's number is what the guest says.
#[test]
fn a_member_rings_no_queues_of_others_by_their_numbers() {
    let first: &'static Service<Script> = Box::leak(Box::new(service(&[]).0));
    let doorbells = Doorbells { first: 0x50, size: 4, by: turnstile_service::image::BY_VALUE };
    let served = Served { bell: 8, mask: 3, ..Served::nowhere(0, doorbells, first) };
    assert_eq!([0, 2, 3, 4, u64::MAX].map(|number| served.queue(0x50, number)), [8, 10, 11, 8, 11].map(Some));
}

/// What is said of crashes is not what these are about.
fn said_beside_crashes(world: &World) -> Vec<String> {
    said(world).into_iter().filter(|what| !what.contains("service test")).collect()
}

/// A shared service of two members, which has handled something of each.
fn two() -> (Service<Script>, &'static World) {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    (0..2).for_each(|member| _ = access_of(&service, member));
    events(&service);
    (service, world)
}

/// Member 1 rings, on which the program crashes: if it knows of the member twice, and in the end as often as that is tried.
fn ring_and_crash(service: &Service<Script>) {
    let done = Step::Done(0, 0);
    service.space.steps.lock().unwrap().extend([Step::Fault, done, done, Step::Fault]);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::doorbell(4), &mut Wanted(0)) };
    service.space.steps.lock().unwrap().clear();
}

#[test]
fn a_shared_service_goes_on_without_who_crashes_it_again_and_again() {
    let (service, world) = two();
    (0..2).for_each(|_| {
        ring_and_crash(&service);
        access_of(&service, 0);
    });
    assert_eq!(service.figures().crashes, 4);
    assert!(!said(world).iter().any(|what| what.starts_with("shut")), "the first are at once");
    events(&service);
    let mut until = NOW.get();
    for wait in [20_000_000, 40_000_000, 80_000_000] {
        let crashes = service.figures().crashes;
        service.space.steps.lock().unwrap().push_back(Step::Fault);
        // SAFETY: the script needs no CPU.
        unsafe { service.post(Pending::doorbell(4), &mut Wanted(0)) };
        until += wait;
        let shut_out = if wait == 20_000_000 { vec!["shut out 2".to_string()] } else { vec![] };
        assert_eq!(said_beside_crashes(world), [shut_out, vec![format!("alarm {until}")]].concat());
        // It may ring as often as it likes, and the other one has its answers.
        NOW.set(until - 1);
        for _ in 0..9 {
            // SAFETY: as above.
            unsafe { service.post(Pending::doorbell(4), &mut Wanted(0)) };
            access_of(&service, 0);
        }
        let attached: Vec<_> = events(&service)
            .into_iter()
            .filter(|(kind, _)| *kind == Kind::Attach)
            .map(|(_, event)| event[2])
            .collect();
        assert_eq!((attached, service.figures().crashes), (vec![0], crashes + 1), "once, for the other one");
        NOW.set(until);
        access_of(&service, 0);
        let attached: Vec<_> = events(&service).into_iter().map(|(_, event)| event[2]).collect();
        assert_eq!(attached, [1], "it comes back");
    }
    NOW.set(until + 20_000_000_000);
    ring_and_crash(&service);
    assert_eq!(said_beside_crashes(world), ["alarm 0"], "forgotten");
}

#[test]
fn who_is_shut_out_for_long_gets_what_an_absent_device_answers() {
    let (service, _) = two();
    let done = Step::Done(0, 0);
    // Each access is tried twice: the second goes well each time, as long as it is tried.
    for _ in 0..4 {
        service.space.steps.lock().unwrap().extend([Step::Fault, done, done, Step::Done(5, 0)]);
        assert_eq!(access_of(&service, 1), 5);
        service.space.steps.lock().unwrap().clear();
    }
    for wait in [20_000_000, 40_000_000] {
        let crashes = service.figures().crashes;
        service.space.steps.lock().unwrap().push_back(Step::Fault);
        assert_eq!(access_of(&service, 1), u64::MAX, "not tried again");
        assert_eq!(service.figures().crashes, crashes + 1);
        if wait > 20_000_000 {
            heard(&service);
            assert_eq!(access_of(&service, 1), u64::MAX, "at once");
            assert_eq!(heard(&service), [""; 0]);
            assert_eq!(access_of(&service, 0), 0, "the other one is served");
        }
        NOW.set(NOW.get() + wait);
        access_of(&service, 0);
    }
    assert!(!service.gate.is_inside());
}

#[test]
fn kills_keep_nobody_out() {
    let (service, world) = two();
    for _ in 0..40 {
        service.kill();
        access_of(&service, 1);
    }
    assert_eq!(service.figures().crashes, 40);
    assert_eq!(said_beside_crashes(world), [""; 0]);
}
