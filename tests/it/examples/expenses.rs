//! The example `expenses`: reports that go from an employee to a manager of the department, and to accounting.

use super::*;

const EXPENSES: &str = include_str!("../../../examples/expenses/nouns.toml");

on_every_backend! {
    fn expenses_are_approved_by_a_manager_of_the_department(backend: Backend) {
        let office = Application::start(backend, EXPENSES, &["accounting"]);
        for (name, roles, department) in [
            ("ann", &["employee"][..], "sales"),
            ("mia", &["employee", "manager"], "sales"),
            ("tom", &["employee", "manager"], "repair"),
            ("zoe", &["employee", "manager", "accounting"], "sales"),
        ] {
            let path = office.server.add_user(&person(name), roles);
            let fields = json!({"user": {"department": department}});
            assert_eq!(office.status("admin", &format!("PATCH {path}"), &fields), 200);
        }
        let report = |purpose: &str| json!({"report": {
            "purpose": purpose, "starts": "2026-11-02", "ends": "2026-11-03",
            "lines": [
                {"day": "2026-11-02", "text": "train", "amount": "120.50"},
                {"day": "2026-11-03", "text": "hotel", "amount": "99.00"},
            ],
        }});
        let (path, _) = office.create("ann", "/reports", &report("fair"));
        let made = office.get("ann", &path);
        assert_eq!((&made["report"]["department"], &made["report"]["total"]), (&json!("sales"), &json!("219.50")));
        let mut reversed = report("x");
        reversed["report"]["ends"] = json!("2026-11-01");
        assert_eq!(office.status("ann", "POST /reports", &reversed), 422);
        let mut foreign = report("x");
        foreign["report"]["department"] = json!("repair");
        assert_eq!(office.status("ann", "POST /reports", &foreign), 403);

        // A draft is the employee's own; the receipts follow the report.
        let (_, category) = office.create("accounting", "/categories", &json!({"category": {"name": "Travel"}}));
        let receipt = json!({"receipt": {"category": category, "amount": "120.50", "file": "https://example.com/1.pdf"}});
        office.create("ann", &format!("{path}/receipts"), &receipt);
        assert_eq!(office.get("mia", "/reports")["reports"], json!([]));
        let patch = |name: &str, members: Value| {
            let headers = [("Content-Type", "application/merge-patch+json"), ("If-Match", "*")];
            let answer = office.send(name, &format!("PATCH {path}"), &headers, &json!({"report": members}));
            answer.status
        };
        assert_eq!(patch("ann", json!({"status": "submitted"})), 200);
        assert_eq!(values(&office.get("mia", "/reports"), "reports", "purpose"), ["fair"]);
        assert_eq!(values(&office.get("mia", "/receipts"), "receipts", "amount"), ["120.50"]);
        assert_eq!((office.get("tom", "/reports")["reports"].clone(), office.get("accounting", "/receipts")["receipts"].clone()), (json!([]), json!([])));
        assert_eq!((patch("ann", json!({"status": "approved"})), patch("tom", json!({"status": "approved"}))), (403, 404));
        assert_eq!(patch("mia", json!({"lines": []})), 403);
        assert_eq!((patch("mia", json!({"status": "approved"})), patch("ann", json!({"purpose": "other"}))), (200, 404));
        assert_eq!((patch("mia", json!({"status": "paid"})), patch("accounting", json!({"status": "paid"}))), (403, 200));
        assert_eq!(office.get("ann", &path)["report"]["updated_by"], "accounting");
        assert_eq!(office.status("ann", &format!("POST {path}/receipts"), &receipt), 403, "a paid report stays as it is");

        // A manager's own report is for another manager, also if accounting is one of the roles.
        let (of_zoe, _) = office.create("zoe", "/reports", &report("zoe's"));
        for (status, expected) in [("submitted", 200), ("approved", 403)] {
            let headers = [("Content-Type", "application/merge-patch+json"), ("If-Match", "*")];
            let status = json!({"report": {"status": status}});
            let answer = office.send("zoe", &format!("PATCH {of_zoe}"), &headers, &status);
            assert_eq!(answer.status, expected, "{status}: {answer:?}");
        }
        let (own, _) = office.create("mia", "/reports", &report("own"));
        let headers = [("Content-Type", "application/merge-patch+json"), ("If-Match", "*")];
        let set = |status: &str| office.send("mia", &format!("PATCH {own}"), &headers, &json!({"report": {"status": status}})).status;
        let lines = json!({"report": {"lines": [{"day": "2026-11-02", "text": "bus", "amount": "9.00"}]}});
        let changed = office.send("mia", &format!("PATCH {own}"), &headers, &lines);
        assert_eq!(changed.status, 200, "as employee: {changed:?}");
        assert_eq!((set("submitted"), set("approved")), (200, 403));
        let totals = office.get("accounting", "/reports?status=paid&total:gte=200");
        assert_eq!(values(&totals, "reports", "total"), ["219.50"]);
    }
}
