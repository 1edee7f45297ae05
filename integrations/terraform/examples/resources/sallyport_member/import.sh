terraform import sallyport_member.ann ann@example.com
