"""The answers that views get, as TypedDicts, a module for each subject.

`tools/answers.py` writes from these modules the schemas in server/openapi.json and the TypeScript types in
labextension/src/answers/. A test fails when those are old. A class is an object; the text below a field says
what the field means. `NotRequired` is what an answer may lack, or what notebooks lack that were saved before
the field was there.
"""
