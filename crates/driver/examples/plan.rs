//! Prints the plan of a dumped graph: `cargo run -p permalloy-driver --example plan -- FILE…`.
use permalloy_loops::kernel::{Program, Step};

fn main() {
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).expect("a readable file");
        let options = permalloy_driver::Options { check: true, ..Default::default() };
        println!("== {file}");
        if text.lines().next().is_some_and(|l| l.contains("joint(")) {
            match permalloy_driver::compile_joint(&text, &options) {
                Err(e) => println!("ERROR {e}"),
                Ok(c) => {
                    show(&c.forward);
                    show(&c.backward);
                    println!(
                        "saved {} values, {:.1} MB, ints {:?}",
                        c.cut.saved.len(),
                        c.cut.saved_bytes as f64 / 1e6,
                        c.cut.saved_ints
                    );
                    for r in &c.records {
                        if matches!(r.route, permalloy_passes::RouteTaken::Native) {
                            println!("  native {} {} {}", r.op, r.reason.name(), r.detail);
                        }
                    }
                    println!("{:?}", c.timing);
                }
            }
        } else {
            match permalloy_driver::compile_graph(&text, &options) {
                Err(e) => println!("ERROR {e}"),
                Ok(c) => show(&c.program),
            }
        }
    }
}

fn show(p: &Program) {
    println!("-- {} steps {}", p.name, p.steps.len());
    let full = std::env::var("FULL").is_ok();
    for s in &p.steps {
        match s {
            Step::Kernel(k) => {
                let fused: Vec<&str> = k.fused.iter().map(|f| &*f.op).collect();
                let axes: Vec<String> = k.axes.iter().map(|a| format!("{}{:?}", a.size, a.role)).collect();
                println!(
                    "  {} [{}] ops {} reads {} writes {} <{}>",
                    k.name,
                    axes.join(" "),
                    k.ops.len(),
                    k.reads().len(),
                    k.writes().len(),
                    fused.len()
                );
                if full {
                    println!("{k}");
                }
            }
            Step::Scatter(s) => println!("  {} {:?}", s.name, s.axes),
            Step::Native(n) => println!("  native {}", n.op),
        }
    }
}
