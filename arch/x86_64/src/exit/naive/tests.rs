// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The chain has a link for each technique that works by one, and nothing for the others.

use super::*;
use crate::exit::tests::machine;

#[test]
fn each_technique_adds_its_link() {
    for technique in Technique::ALL {
        let by_handler = matches!(technique, Technique::LightExit | Technique::IndexedDispatch);
        let on = technique.is_on(turnstile_techniques::Architecture::Amd64);
        assert_eq!(chain(Set::of(technique)).count(), usize::from(on && !by_handler), "{technique}");
    }
    assert!(chain(Set::ALL).count() < LINKS, "a zero ends it");
    assert_eq!(chain(Set::NONE).count(), 0);
}

#[test]
fn links_leave_the_guest_as_it_is() {
    for hook in chain(Set::ALL) {
        let (_, mut frame, mut vmcb, _) = machine();
        let before = (vmcb.rip(), vmcb.rax(), vmcb.rflags(), vmcb.interrupts(), vmcb.event());
        hook(&mut frame, &mut vmcb);
        assert_eq!((vmcb.rip(), vmcb.rax(), vmcb.rflags(), vmcb.interrupts(), vmcb.event()), before);
        assert!((0..16).all(|register| frame.get(&vmcb, register) == 0));
    }
}
