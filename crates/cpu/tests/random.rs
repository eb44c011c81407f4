//! Random kernels against the evaluator: every instruction set, one thread and three, memory shared and not.

mod support;

use support::random::random_case;

fn check(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        random_case(seed).check(seed + 1);
    }
}

/// Few enough for a memory checker.
#[test]
fn a_few() {
    check(5000..5060);
}

mod random_batches {
    macro_rules! batches {
        ($($name:ident $from:literal)*) => {$(
            #[test]
            fn $name() {
                super::check($from..$from + 250);
            }
        )*};
    }

    batches! { a 0 b 250 c 500 d 750 e 1000 f 1250 }
}
