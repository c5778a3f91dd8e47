{
  "payload": "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCJwcmVkaWNhdGUiOnsiY29udGVudF9zaGEyNTYiOiI3ZGZmOGIxNTQyNTFjOGI5ODhlMThlYWQxOTU2OGE2YzBhZmI2NTFkZWViZmFjMmFjMzIyODRhNDZlYTA2NDkwIiwicnVucyI6W3siZ3JhZGUiOiJ2ZXJpZmllZCIsInJ1bl9pZCI6ImZpbmlzaGVkIn1dfSwicHJlZGljYXRlVHlwZSI6Imh0dHBzOi8vdHJhaW5wcm9vZi5leGFtcGxlL2J1bmRsZS92MSIsInN1YmplY3QiOlt7ImRpZ2VzdCI6eyJzaGEyNTYiOiI3YjM0ZDZkODBmZDYyYzMwOGVmMzYzODVjODhjOTRhMjFiM2YyZmIzM2Y3ZDdmNTExMGEyODhkMmExZTYwNzY2In0sIm5hbWUiOiJmaW5pc2hlZC56aXAifV19",
  "payloadType": "application/vnd.in-toto+json",
  "signatures": [
    {
      "keyid": "SHA256:4514d0ceee171c2902d2b09769db7a8c19973b686dcbefdcc9db85f73f47ea12",
      "sig": "lCo1FO+gp0rLYTapbio7IBes5ZHUhFGzgNjXSfgJUaU07CYXIbKVKOCERMK54Tz7w+Y5AjvWvoms2tTYHV4LAA=="
    }
  ]
}
