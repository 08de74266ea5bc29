//! The example `courses`: relations of many to many, and enrolments that teachers decide.

use super::*;

const COURSES: &str = include_str!("../../../examples/courses/nouns.toml");

on_every_backend! {
    fn courses_have_students_teachers_and_subjects(backend: Backend) {
        let school = Application::start(backend, COURSES, &["office", "teacher", "student"]);
        let subject = |name: &str| school.create("office", "/subjects", &json!({"subject": {"name": name}})).1;
        let (maths, physics) = (subject("Mathematics"), subject("Physics"));
        let course = |title: &str, subjects: &[&str], teachers: &[&str]| {
            let body = json!({"course": {"title": title, "subjects": subjects, "teachers": teachers}});
            school.create("office", "/courses", &body)
        };
        let (algebra, algebra_id) = course("Algebra", &[&maths], &["teacher", "other"]);
        let (waves, _) = course("Waves", &[&maths, &physics], &["other"]);
        let require = json!({"course": {"requires": [algebra_id]}});
        assert_eq!(school.status("office", &format!("PATCH {waves}"), &require), 200);
        let by_subject = |id: &str| {
            let list = school.get("office", &format!("/courses?subjects:has={id}&sort=title"));
            values(&list, "courses", "title")
        };
        assert_eq!((by_subject(&maths), by_subject(&physics)), (vec![json!("Algebra"), json!("Waves")], vec![json!("Waves")]));
        assert_eq!(school.status("office", &format!("DELETE /subjects/{physics}"), &Value::Null), 409, "a course has it");
        let expanded = school.get("office", &format!("{waves}?expand=requires,subjects"));
        assert_eq!(expanded["course"]["requires"][0]["title"], "Algebra");

        // Students see what is on offer, and enrol themselves.
        let student = |name: &str, account: Option<&str>| {
            let mut body = json!({"student": {"name": name}});
            if let Some(account) = account {
                body["student"]["account"] = json!(account);
            }
            school.create("office", "/students", &body).1
        };
        let (ann, bob) = (student("Ann", Some("student")), student("Bob", None));
        assert_eq!(school.get("student", "/courses")["courses"], json!([]));
        let open = json!({"course": {"status": "open"}});
        assert_eq!(school.status("teacher", &format!("PATCH {algebra}"), &open), 200);
        assert_eq!(school.status("office", &format!("PATCH {waves}"), &open), 200);
        assert_eq!(values(&school.get("student", "/courses?sort=title"), "courses", "title"), ["Algebra", "Waves"]);
        assert!(school.get("student", &algebra)["course"].get("teachers").is_none());
        let enrol = |name: &str, course: &str, student: &str| {
            school.send(name, &format!("POST {course}/enrolments"), &[], &json!({"enrolment": {"student": student}}))
        };
        let first = enrol("student", &algebra, &ann);
        assert_eq!(first.status, 201, "{first:?}");
        let enrolment = first.header("Location").unwrap().to_owned();
        assert_eq!(enrol("student", &algebra, &bob).status, 422, "the record of somebody else");
        assert_eq!((enrol("student", &algebra, &ann).status, enrol("office", &waves, &bob).status), (409, 201));

        // A teacher decides about the own courses alone.
        assert_eq!(values(&school.get("teacher", "/courses"), "courses", "title"), ["Algebra"]);
        assert_eq!(values(&school.get("teacher", "/enrolments"), "enrolments", "student"), [ann.as_str()]);
        assert_eq!(school.status("teacher", &format!("PATCH {algebra}"), &json!({"course": {"teachers": []}})), 403);
        let set = |name: &str, status: &str| school.status(name, &format!("PATCH {enrolment}"), &json!({"enrolment": {"status": status}}));
        assert_eq!((set("student", "accepted"), set("office", "accepted"), set("office", "passed")), (403, 200, 403));
        let points = json!({"enrolment": {"points": 90}});
        assert_eq!(school.status("student", &format!("PATCH {enrolment}"), &points), 403);
        assert_eq!((school.status("teacher", &format!("PATCH {enrolment}"), &points), set("teacher", "passed")), (200, 200));
        assert_eq!(set("student", "withdrawn"), 409);
        let own = school.get("student", "/enrolments?status=passed");
        assert_eq!(values(&own, "enrolments", "points"), [90]);
    }
}
