"""Texts of several scripts and kinds, written for measuring token estimates."""

# ruff: noqa: E501 - a sample is shown on the line that it stands for

from __future__ import annotations

from typing import Final

SAMPLES: Final = {
    "english": (
        "The office on the third floor closes at six, but the cleaning crew lets people in until nine if they ask. "
        "She prefers tea to coffee, reads the quarterly figures before the meeting, and will not answer calls on "
        "Sundays. Last spring the whole department moved across the river; nobody misses the old elevator, although "
        "the view of the harbour was wonderful. Please don't schedule interviews before ten o'clock."
    ),
    "english, dense": (
        "Heterogeneous microservice architectures exacerbate observability shortcomings; idempotent reconciliation "
        "mitigates nondeterministic partial-failure semantics. Acetylsalicylic acid, metoprolol succinate and "
        "levothyroxine were prescribed. Flibbertigibbet quixotically zigzagged past Worcestershire."
    ),
    "chinese": (
        "他喜欢喝绿茶，不喜欢咖啡。办公室在三楼，每天早上九点开门。去年春天，整个部门搬到了河对岸，"
        "大家都很怀念旧办公室的风景。请不要在星期天给她打电话，她要陪孩子们去公园。项目的预算已经批准，"
        "下个月开始招聘新的工程师。昨晚的暴雨淹没了停车场，保险公司还没有回复。"
    ),
    "traditional chinese": (
        "她每天搭捷運上班，午餐通常自己準備。辦公室的鑰匙放在櫃檯，請記得歸還。今年夏天預計前往臺南旅遊，"
        "順便拜訪親戚。醫師建議他減少糖分攝取，並且規律運動。"
    ),
    "japanese": (
        "彼女は毎朝コーヒーではなく緑茶を飲みます。会議は木曜日の午後三時からですが、資料は前日までに送ってください。"
        "去年の春に部署全体が川の向こう側へ引っ越しました。カタカナのプログラミング用語、たとえばデータベースや"
        "インターフェースはよく使われます。猫を二匹飼っていて、名前はまだありません。"
    ),
    "korean": (
        "그는 커피보다 녹차를 더 좋아합니다. 사무실은 삼층에 있고 매일 아침 아홉 시에 문을 엽니다. 지난봄에 부서 전체가 "
        "강 건너편으로 이사했습니다. 일요일에는 전화하지 마세요. 다음 달부터 새로운 개발자를 뽑을 예정이며 예산은 이미 "
        "승인되었습니다. 고양이 두 마리를 키우고 있어요."
    ),
    "arabic": (
        "تفضل الشاي على القهوة ولا ترد على المكالمات يوم الجمعة. انتقل المكتب في الربيع الماضي إلى الضفة الأخرى من النهر، "
        "وما زال الجميع يتذكرون المنظر القديم. يرجى إرسال التقرير قبل الاجتماع بيوم واحد على الأقل. تمت الموافقة على "
        "الميزانية وسيبدأ التوظيف في الشهر القادم."
    ),
    "arabic with vowel signs": "قُلْ لِلْمُدِيرِ إِنَّ ٱلْمَوْعِدَ تَأَجَّلَ إِلَى يَوْمِ ٱلْخَمِيسِ.",
    "persian": "او چای را به قهوه ترجیح می‌دهد و جمعه‌ها به تلفن پاسخ نمی‌دهد. دفتر در طبقهٔ سوم است.",
    "russian": (
        "Она предпочитает чай, а не кофе, и никогда не отвечает на звонки по воскресеньям. Прошлой весной весь отдел "
        "переехал на другой берег реки, и никто не скучает по старому лифту. Пожалуйста, присылайте отчёт хотя бы за "
        "день до совещания. Бюджет утверждён, со следующего месяца начнём набирать разработчиков."
    ),
    "ukrainian": "Вона любить чай із м'ятою, їздить на роботу велосипедом і щовечора вчить іспанську.",
    "greek": "Προτιμά το τσάι από τον καφέ και δεν απαντά στο τηλέφωνο τις Κυριακές. Το γραφείο είναι στον τρίτο όροφο.",
    "hebrew": "היא מעדיפה תה על פני קפה ולא עונה לטלפון בשבת. המשרד נמצא בקומה השלישית ונפתח בתשע בבוקר.",
    "hindi": "उसे कॉफ़ी से ज़्यादा चाय पसंद है और वह रविवार को फ़ोन नहीं उठाती। दफ़्तर तीसरी मंज़िल पर है।",
    "thai": "เธอชอบดื่มชามากกว่ากาแฟและไม่รับโทรศัพท์ในวันอาทิตย์ สำนักงานอยู่บนชั้นสาม",
    "vietnamese": "Cô ấy thích uống trà hơn cà phê và không nghe điện thoại vào Chủ nhật. Văn phòng ở tầng ba.",
    "german": "Sie trinkt lieber Tee als Kaffee; die Geschäftsführung möchte Überstundenzuschläge künftig größtenteils auszahlen.",
    "french": "Elle préfère le thé au café ; l'année dernière, toute l'équipe a déménagé de l'autre côté de la rivière.",
    "polish": "Woli herbatę od kawy, w niedziele nie odbiera telefonów, a biuro mieści się na trzecim piętrze. Źdźbło, żółw.",
    "turkish": "Kahveden çok çayı sever, pazar günleri telefona bakmaz; ofis üçüncü katta, görüşmelerimiz ertelenmiştir.",
    "emoji": "😀😃🎉👨‍👩‍👧‍👦❤️🔥👍🏽🇯🇵🏳️‍🌈✨🍕🚀😂🤔💯🙏🏿👩🏻‍💻🐙🦄🫠🪿☕️✈️🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "emoji in prose": "On my way 🚗💨 see you at the pizza place 🍕🍕!! Can't wait 😍😍😍 bring the dog 🐕‍🦺 and umbrella ☔️",
    "python": (
        "def merge(left: list[int], right: list[int]) -> list[int]:\n    result: list[int] = []\n    i = j = 0\n"
        "    while i < len(left) and j < len(right):\n        if left[i] <= right[j]:\n"
        "            result.append(left[i])\n            i += 1\n        else:\n            result.append(right[j])\n"
        "            j += 1\n    return result + left[i:] + right[j:]\n"
    ),
    "rust": (
        "impl<'a, T: Clone> Iterator for Chunks<'a, T> {\n\ttype Item = &'a [T];\n\n\tfn next(&mut self) -> "
        "Option<Self::Item> {\n\t\tif self.v.is_empty() { return None; }\n\t\tlet sz = cmp::min(self.v.len(), "
        "self.chunk_size);\n\t\tlet (fst, snd) = self.v.split_at(sz);\n\t\tself.v = snd;\n\t\tSome(fst)\n\t}\n}\n"
    ),
    "shell": "for f in $(ls -1 *.log | sort -r); do grep -Eo '[0-9]{3}\\.[0-9]+' \"$f\" >> /tmp/out_$$.txt || exit 1; done",
    "json": (
        '{"id": "node-00017", "scope": "org:acme/user:ada", "label": "SOUL:prefers tea", "properties": {"role": "CTO", '
        '"_field_provenance": {"role": {"source": "user-correction", "recorded_at": "2026-06-01T09:30:00Z"}}}, '
        '"tags": ["a", "b", "c"], "score": 0.98125, "active": true, "parent": null}'
    ),
    "json, compact": '[{"k":1,"v":[1,2,3.5,-7e10]},{"k":2,"v":[]},{"k":3,"v":{"x":null,"y":false,"z":"\\u00e9\\n"}}]',
    "json, indented": '{\n  "users": [\n    {\n      "name": "u1",\n      "age": 41\n    },\n    {\n      "name": "u2"\n    }\n  ]\n}\n',
    "identifiers": "getUserByIdAsync HTTPServerError max_fact_characters kMaxBufferSize XMLHttpRequest snake_case_name_2",
    "hexadecimal": "7f3a9c0be41d22aa90ffc6a28fff30a142eb5aabb1b4370475f21c6ea42b12e3 550e8400-e29b-41d4-a716-446655440000",
    "base64": "aGVsbG8gd29ybGQhIFRoaXMgaXMgYmFzZTY0IHRleHQgd2l0aCBubyBtZWFuaW5nIGF0IGFsbC4uLg== kJ8xQz0PvWm3TnYb7RdLs2Aq",
    "numbers": "2026-05-02 10:00:00 3.14159265358979 1,234,567.89 +49 30 1234567 0x1F 1e-9 42 1000000000",
    "url": "https://example.org/a/b?page=2&sort=desc&q=t%C3%A9a#section-3 mailto:nobody@example.com /usr/local/lib64/x.so.1",
    "block": (
        '### PROFILE / USER_PROFILE\n<untrusted-data-7f3a9c block="USER_PROFILE">\n[recorded 2026-05-02, '
        'source=onboarding]\n- "prefers tea"\n- "has two children"\n[recorded 2026-06-01, source=user-correction]\n'
        '- role: "CTO"\n</untrusted-data-7f3a9c>'
    ),
    "escapes": '- "\\u200b\\u200b\\u2028x\\ud83d\\ude00\\n\\t\\"quoted\\""',
    "symbols": "→ ← ≤ ≥ ± × ÷ ∑ ∫ √ ∞ € £ ¥ © ® ™ § ¶ • … — “quoted” ‘single’ «guillemets»",
    "spaces": "a    b\t\tc\n\n\n   d  \r\n\r\n  e",
}
